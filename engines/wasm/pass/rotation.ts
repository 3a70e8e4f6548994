// Rotation table of a pass: the cosine and sine of each rotated pair at every token's position. Every compute thread
// fills its own table at the start of a pass.

import { type AttentionTemperature, axisCount, type Rope } from "../graph/ropes.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";

/** Fills `table`: two floats (cosine, sine) for each pair of each token of the pass. */
export function fillRotation(pass: PassDescriptor, rope: Rope, table: Float32Array): void {
  if (rope.axes !== null) {
    fillByCoordinates(pass, rope, rope.axes, table);
    return;
  }
  const { frequencies, temperature } = rope;
  const pairs = frequencies.length;
  for (let row = 0; row < pass.rowCount; row++) {
    let at = pass.row(row, rowField.firstToken) * 2 * pairs;
    const firstPosition = pass.row(row, rowField.firstPosition);
    for (let i = 0; i < pass.row(row, rowField.length); i++) {
      const magnitude = rope.magnitude * (temperature === undefined ? 1 : queryFactor(temperature, firstPosition + i));
      for (let pair = 0; pair < pairs; pair++) {
        const angle = (firstPosition + i) * (frequencies[pair] as number);
        table[at++] = Math.cos(angle) * magnitude;
        table[at++] = Math.sin(angle) * magnitude;
      }
    }
  }
}

function queryFactor({ scale, length }: AttentionTemperature, position: number): number {
  return 1 + scale * Math.log(1 + Math.floor(position / length));
}

function fillByCoordinates(
  { tokenCount, coordinates }: PassDescriptor,
  { frequencies, magnitude }: Rope,
  axes: Uint8Array,
  table: Float32Array,
): void {
  let at = 0;
  for (let token = 0; token < tokenCount; token++) {
    for (let pair = 0; pair < frequencies.length; pair++) {
      const position = coordinates[token * axisCount + (axes[pair] as number)] as number;
      const angle = position * (frequencies[pair] as number);
      table[at++] = Math.cos(angle) * magnitude;
      table[at++] = Math.sin(angle) * magnitude;
    }
  }
}
