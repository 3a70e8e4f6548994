// Owns the table that queries and keys are rotated by in a pass: a cosine and a sine of every token's position for each pair
// of a head's floats. Every compute thread fills its own, at the start of a pass.
import type { Hyperparameters } from "./hyperparameters.ts";
import { type Order, rowField } from "./order.ts";

/** `table` has `shape.rotated` floats for each token of the order. */
export function fillRotation(order: Order, shape: Hyperparameters, table: Float32Array): void {
  const { ropeFrequencies, ropeMagnitude, rotated } = shape;
  for (let row = 0; row < order.rowCount; row++) {
    let at = order.row(row, rowField.firstToken) * rotated;
    const firstPosition = order.row(row, rowField.firstPosition);
    for (let i = 0; i < order.row(row, rowField.length); i++) {
      for (let pair = 0; pair < rotated / 2; pair++) {
        const angle = (firstPosition + i) * (ropeFrequencies[pair] as number);
        table[at++] = Math.cos(angle) * ropeMagnitude;
        table[at++] = Math.sin(angle) * ropeMagnitude;
      }
    }
  }
}
