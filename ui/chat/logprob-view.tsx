// Logprobs of an answer: each token is coloured by its probability. A click on a token shows the alternatives.
import { useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { number } from "../base/times.ts";
import type { Answer } from "../conversations/records.ts";

/** Maximum number of tokens shown at first. */
const mostTokens = 2000;

export function LogprobView({ answer }: { readonly answer: Answer }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const [count, setCount] = useState(mostTokens);
  const tokens = answer.output.flatMap(({ content }) => (content ?? []).flatMap(({ logprobs }) => logprobs ?? []));
  const shown = chosen === null ? null : (tokens[chosen] ?? null);
  return (
    <div class="logprobs">
      <p class="tokens">
        {tokens.slice(0, count).map(({ token, logprob }, i) => (
          <button
            key={i}
            type="button"
            class="token"
            style={{ "--doubt": String(1 - Math.exp(logprob)) }}
            aria-pressed={i === chosen}
            onClick={() => setChosen(i)}
          >
            {token}
          </button>
        ))}
      </p>
      {tokens.length > count && (
        <button type="button" class="button" onClick={() => setCount(count + mostTokens)}>
          {t("more")}
        </button>
      )}
      {shown !== null && (
        <table>
          <caption>{t("alternatives", { token: JSON.stringify(shown.token) })}</caption>
          <tbody>
            {shown.top_logprobs.map(({ token, logprob }) => (
              <tr key={token} class={token === shown.token ? "chosen" : ""}>
                <td>
                  <code>{JSON.stringify(token)}</code>
                </td>
                <td>{number(100 * Math.exp(logprob), 2)} %</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
