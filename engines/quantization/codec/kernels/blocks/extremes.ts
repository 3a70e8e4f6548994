// Extremes of blocks of 32 values.

/** Returns a vector whose largest lane is the largest value of a block, or the largest magnitude if `isMagnitude`. */
// @ts-expect-error: decorator
@inline
export function largest(at: usize, isMagnitude: bool): v128 {
  return f32x4.pmax(
    f32x4.pmax(
      f32x4.pmax(valueOrSize(at, isMagnitude), valueOrSize(at + 16, isMagnitude)),
      f32x4.pmax(valueOrSize(at + 32, isMagnitude), valueOrSize(at + 48, isMagnitude)),
    ),
    f32x4.pmax(
      f32x4.pmax(valueOrSize(at + 64, isMagnitude), valueOrSize(at + 80, isMagnitude)),
      f32x4.pmax(valueOrSize(at + 96, isMagnitude), valueOrSize(at + 112, isMagnitude)),
    ),
  );
}

// @ts-expect-error: decorator
@inline
function valueOrSize(at: usize, isMagnitude: bool): v128 {
  return isMagnitude ? f32x4.abs(v128.load(at)) : v128.load(at);
}

/** Returns a vector whose smallest lane is the smallest value of a block. */
// @ts-expect-error: decorator
@inline
export function smallest(at: usize): v128 {
  return f32x4.pmin(
    f32x4.pmin(
      f32x4.pmin(v128.load(at), v128.load(at, 16)),
      f32x4.pmin(v128.load(at, 32), v128.load(at, 48)),
    ),
    f32x4.pmin(
      f32x4.pmin(v128.load(at, 64), v128.load(at, 80)),
      f32x4.pmin(v128.load(at, 96), v128.load(at, 112)),
    ),
  );
}

/** Returns a vector with the largest lane of each of four vectors, in order. */
// @ts-expect-error: decorator
@inline
export function largestLanes(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.pmax(i32x4.shuffle(a, b, 0, 4, 1, 5), i32x4.shuffle(a, b, 2, 6, 3, 7));
  const cd = f32x4.pmax(i32x4.shuffle(c, d, 0, 4, 1, 5), i32x4.shuffle(c, d, 2, 6, 3, 7));
  return f32x4.pmax(i64x2.shuffle(ab, cd, 0, 2), i64x2.shuffle(ab, cd, 1, 3));
}
