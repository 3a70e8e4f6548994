// Audio windows: the sample rate to which audio is decoded, and the length of the pieces in which encoders take it.

export const sampleRate = 16_000;
export const windowSeconds = 30;
export const windowSamples = windowSeconds * sampleRate;
