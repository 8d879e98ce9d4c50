"""The papers' data files one by one: what each is called, where it lives, and its checksum."""

from __future__ import annotations

from pipeline.reproduce.source import TableFile

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
# The archive has the training rows in a format of compress(1) that Python does not read.
_SHUTTLE = "https://raw.githubusercontent.com/ssmcnatt/assignments/0ff4d1020232e9ff1c32813584601f3dac48423a/data"


def _plain(room: str, name: str, folder: str, sha256: str) -> TableFile:
    return TableFile(room, name, f"{folder}/{name}", sha256, sha256)


_LIST = (
    _plain("adult", "a9a", _LIBSVM, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    _plain("adult", "a9a.t", _LIBSVM, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    _plain("adult", "a1a", _LIBSVM, "25117c3e7614e158bb7f883b47b1facb46c28948fdfc9eae4f804ac2c00e0392"),
    _plain("adult", "a1a.t", _LIBSVM, "0212d0c4a3996fe6fb6a0ab54033d9f4fa4b60369b6e3bb141821d9ffc40c04d"),
    _plain("web", "w8a", _LIBSVM, "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2"),
    _plain("web", "w8a.t", _LIBSVM, "618929ecb01bebb841daec4cae4aa07b97832d29b08652452775598929547fde"),
    _plain("web", "w7a", _LIBSVM, "bd02f445a1a2f4aaefd27d7dcc31f1f6a8521f904157f2ee7c96d1294cd26e36"),
    _plain("web", "w7a.t", _LIBSVM, "a52edcfe9871e3b0db5d864959bf32230491ddfeca3334cfec93c1d932ea32b9"),
    _plain("web", "w1a", _LIBSVM, "0ae2b1c40f6a99061d1c6f4a1f3b50eea58a2f3b8bf851a337c25c2a65a49d32"),
    # In the order that taking the rows of w1a out of w8a gives; the published file may have another.
    _plain("web", "w1a.t", _LIBSVM, "c1dd8da3c5ed1fe3bc310d86b1f32a595791290b807182306c3a7ed2ff0324cc"),
    _plain(
        "german",
        "german.data-numeric",
        f"{_UCI}/statlog/german",
        "2752b044394958ab6dd193a0b56ca0f0b3a2d8bc7cb8c008e35a5e84bbec02f8",
    ),
    _plain(
        "sonar",
        "sonar.all-data",
        f"{_UCI}/undocumented/connectionist-bench/sonar",
        "e90434cdbf00fcf93ffa911fe447ae25606979658e60f1d32e155c3b5240234d",
    ),
    _plain("shuttle", "shuttle.trn", _SHUTTLE, "87b24ee9fb5137e1d417659cf905d84d0e15342bbaa60770f1ae83da1a38200a"),
    _plain(
        "shuttle",
        "shuttle.tst",
        f"{_UCI}/statlog/shuttle",
        "f776934a628d9b94c482cb058a76ddaa63823e0f74aec065813c9dff3b89d661",
    ),
    TableFile(
        "reuters21578",
        "reuters21578.tar.gz",
        f"{_UCI}/reuters21578-mld/reuters21578.tar.gz",
        None,
        "3bae43c9b14e387f76a61b6d82bf98a4fb5d3ef99ef7e7075ff2ccbcf59f9d30",
        names=("reuters21578-sgml.tar.xz", "reuters21578.tar.xz"),
    ),
)
FILES = {file.name: file for file in _LIST}
REUTERS_SHA256 = "b9f3dfa9691a57bfac8d55c0fde314e12cdb6a2ad66bebf3f61c9b8883ad2be3"
"""Of the 22 SGML files of Reuters-21578, one after the other."""
