// Owns the table that queries and keys are rotated by in a pass: a cosine and a sine of every token's position for each pair
// of a head's floats. Every compute thread fills its own, at the start of a pass.

import type { Rope } from "../graph/ropes.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";

/** `table` has two floats for each pair and each token of the order. */
export function fillRotation(order: PassDescriptor, { frequencies, magnitude }: Rope, table: Float32Array): void {
  const pairs = frequencies.length;
  for (let row = 0; row < order.rowCount; row++) {
    let at = order.row(row, rowField.firstToken) * 2 * pairs;
    const firstPosition = order.row(row, rowField.firstPosition);
    for (let i = 0; i < order.row(row, rowField.length); i++) {
      for (let pair = 0; pair < pairs; pair++) {
        const angle = (firstPosition + i) * (frequencies[pair] as number);
        table[at++] = Math.cos(angle) * magnitude;
        table[at++] = Math.sin(angle) * magnitude;
      }
    }
  }
}
