// In the audio thread: collects a tenth of a second of the microphone as 16-bit samples, and how loud they are.

const CLIPPED = 0.985;

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.length = Math.round(sampleRate / 10);
    this.begin();
  }

  begin() {
    this.samples = new Int16Array(this.length);
    this.filled = 0;
    this.peak = 0;
    this.clipped = 0;
  }

  process(inputs) {
    const channels = inputs[0];
    const count = channels.length ? channels[0].length : 0;
    for (let n = 0; n < count; n += 1) {
      let sample = 0;
      for (const channel of channels) sample += channel[n];
      this.take(sample / channels.length);
    }
    return true;
  }

  take(sample) {
    const size = Math.abs(sample);
    if (size > this.peak) this.peak = size;
    if (size >= CLIPPED) this.clipped += 1;
    // Integers are divided by 32768 where they arrive; full scale itself has no integer.
    this.samples[this.filled] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
    this.filled += 1;
    if (this.filled === this.length) {
      const { samples, peak, clipped, length } = this;
      this.port.postMessage({ pcm: samples.buffer, peak, clipped: clipped / length }, [samples.buffer]);
      this.begin();
    }
  }
}

registerProcessor("recorder", Recorder);
