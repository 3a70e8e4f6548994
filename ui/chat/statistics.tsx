// Statistics of an answer: number of tokens, tokens per second, and time to the first token.
import { t } from "../base/language.ts";
import { duration, number } from "../base/times.ts";
import type { Answer } from "../conversations/records.ts";

export function Statistics({ answer: { usage, firstMs, lastMs } }: { readonly answer: Answer }) {
  if (usage === null) return null;
  const seconds = firstMs === null || lastMs === null ? 0 : (lastMs - firstMs) / 1000;
  const parts = [
    t("tokens", { count: number(usage.output_tokens) }),
    ...(seconds > 0 && usage.output_tokens > 1
      ? [t("tokensPerSecond", { rate: number((usage.output_tokens - 1) / seconds, 1) })]
      : []),
    ...(firstMs === null ? [] : [t("firstToken", { time: duration(firstMs) })]),
  ];
  const { cached_tokens: cached = 0 } = usage.input_tokens_details ?? {};
  const details = t("promptTokens", { count: number(usage.input_tokens), cached: number(cached) });
  return (
    <span class="statistics" title={details}>
      {parts.join(" · ")}
    </span>
  );
}
