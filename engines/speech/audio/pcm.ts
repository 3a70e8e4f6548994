// PCM: 16-bit samples and the header of WAV files.

const headBytes = 44;
/** Length field in the header if the length is unknown: programs then read until the end of the file. */
const unknownLength = 0xffff_ffff;

/** Converts samples from -1 to 1 into 16-bit little-endian integers. */
export function pcm16(samples: Float32Array): Uint8Array {
  const values = new Int16Array(samples.length);
  for (let i = 0; i < samples.length; i++) {
    const sample = samples[i] as number;
    // Samples beyond full scale are clipped. NaN becomes silence.
    values[i] = Math.max(-32_768, Math.min(32_767, Math.round(sample * 32_767)));
  }
  return new Uint8Array(values.buffer);
}

/** Returns the header of a mono WAV file with 16-bit samples. `dataBytes`: length of the samples; null = unknown. */
export function wavHeader(sampleRate: number, dataBytes: number | null): Uint8Array {
  const head = new DataView(new ArrayBuffer(headBytes));
  const text = (at: number, value: string): void => {
    for (let i = 0; i < value.length; i++) head.setUint8(at + i, value.charCodeAt(i));
  };
  text(0, "RIFF");
  head.setUint32(4, dataBytes === null ? unknownLength : dataBytes + headBytes - 8, true);
  text(8, "WAVEfmt ");
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, 1, true);
  head.setUint32(24, sampleRate, true);
  head.setUint32(28, sampleRate * 2, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  text(36, "data");
  head.setUint32(40, dataBytes ?? unknownLength, true);
  return new Uint8Array(head.buffer);
}
