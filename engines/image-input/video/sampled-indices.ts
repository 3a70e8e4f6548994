/** Returns the numbers of at most `most` frames of `total`, evenly spaced, the first and the last among them. */
export function sampledIndices(total: number, most: number): readonly number[] {
  const count = Math.min(total, most);
  if (count === 1) return [0];
  return Array.from({ length: count }, (_, i) => Math.round((i * (total - 1)) / (count - 1)));
}
