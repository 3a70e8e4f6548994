// Operand unpacking: unpacks packed quants of four rows into operands. An operand is a vector of 16 quants, one per
// byte: four columns of each row. A whole record (super-block of 256 columns) is unpacked to read a single row, a
// single step (16 columns) for the inner loops. layout.ts defines the formats.
import { BLOCKS, hasBits, scaleBytes, vectorsOf } from "./layout";
import { bits, FIRST_STEP, operand, operandExtra, operandMask } from "./operands";

/** Size in bytes of an unpacked record: a super-block of 256 columns of four rows, one byte per quant. */
const PANEL_BYTES: usize = 1024;
const STEP_BYTES: usize = 64;

/** Unpacks a record (a super-block of 256 columns of four rows): writes its 64 operands of 16 bytes, in order. */
// @ts-expect-error: decorator
@inline
export function unpack(type: i32, products: i32, record: usize, panel: usize): void {
  const stepBytes = <usize>vectorsOf(type) << 4;
  const mask = i32x4.splat(operandMask(type)), extra = operandExtra(type, products);
  let quants = record + BLOCKS * scaleBytes(type);
  const end = panel + PANEL_BYTES;
  while (panel < end) {
    const single = quants + stepBytes * 2;
    let factor = i32x4.splat(FIRST_STEP);
    do {
      unpackStep(type, quants, single, factor, mask, extra, panel);
      if (hasBits(type)) factor = i16x8.shr_u(factor, 4);
      quants += stepBytes;
      panel += STEP_BYTES;
    } while (quants < single);
    if (hasBits(type)) quants += 16;
  }
}

/** Unpacks one step (half of a block of 32 columns) of four rows: writes its four operands of 16 bytes. */
// @ts-expect-error: decorator
@inline
export function unpackStep(
  type: i32, quants: usize, single: usize, factor: v128, mask: v128, extra: v128, out: usize,
): void {
  const v0 = v128.load(quants), v1 = vectorsOf(type) > 1 ? v128.load(quants, 16) : v0;
  const v2 = vectorsOf(type) > 2 ? v128.load(quants, 32) : v0;
  const high = bits(type, single, factor);
  v128.store(out, operand(type, 0, v0, v1, v2, high, mask, extra));
  v128.store(out, operand(type, 1, v0, v1, v2, high, mask, extra), 16);
  v128.store(out, operand(type, 2, v0, v1, v2, high, mask, extra), 32);
  v128.store(out, operand(type, 3, v0, v1, v2, high, mask, extra), 48);
}
