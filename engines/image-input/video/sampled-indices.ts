/** Returns the indices of at most `most` of `total` frames, evenly spaced, including the first and the last frame. */
export function sampledIndices(total: number, most: number): readonly number[] {
  const count = Math.min(total, most);
  if (count === 1) return [0];
  return Array.from({ length: count }, (_, i) => Math.round((i * (total - 1)) / (count - 1)));
}
