// Grammar mask: one bit for each token of a row, set if the token may come next. Token 0 is the lowest bit of word 0.
import { blockCount, mask, row } from "./layout";

/** Sets the logit of each token whose mask bit is 0 to -inf. */
export function restrict(): void {
  const words = mask + (<usize>blockCount << 4);
  const never = f32x4.splat(-Infinity);
  const lanes = i32x4(1, 2, 4, 8);
  let at = row;
  for (let word = mask; word < words; word += 4, at += 128) {
    const bits = load<i32>(word);
    if (bits == -1) continue;
    for (let shift = 0; shift < 32; shift += 4) {
      const vector = at + (<usize>shift << 2);
      const allowed = i32x4.eq(v128.and(i32x4.splat(bits >> shift), lanes), lanes);
      v128.store(vector, v128.bitselect(v128.load(vector), never, allowed));
    }
  }
}
