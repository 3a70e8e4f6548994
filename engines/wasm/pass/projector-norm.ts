import type { NormStep } from "../graph/projector-steps.ts";
import type { StepParts } from "./step-runner.ts";

/** Norms `count` rows of `columns` floats at x, and writes them to `out`, which may equal x. */
export function normRows(
  { kernels, at }: Pick<StepParts, "kernels" | "at">,
  { of, norm, epsilon }: NormStep,
  {
    x,
    out,
    columns,
    count,
  }: { readonly x: number; readonly out: number; readonly columns: number; readonly count: number },
): void {
  const addressOf = (name: string | undefined) => (name === undefined ? 0 : (at.weights.get(name) as number));
  const [weight, bias] = [addressOf(norm?.weight.name), addressOf(norm?.bias?.name)];
  if (of === "rms") kernels.rmsNorm(x, columns, weight, out, columns, count, columns, epsilon);
  else kernels.layerNorm(x, columns, weight, bias, out, columns, count, columns, epsilon);
}
