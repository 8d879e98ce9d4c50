"""Files that other tools write and read: trial lists, keys, scores, speech regions. One module a family of formats."""

FORMATS = ("bosaris", "csv", "kaldi", "nist", "parquet", "spk2utt", "voiceclaim", "voxceleb")
"""What a file may be said to be."""
