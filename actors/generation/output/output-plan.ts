// Output plan: how the text of each choice of a request is parsed and checked. Made from the output of a text worker and the
// parser of the model's format.
import { formatNamed } from "../../../engines/text/parse/choose-format.ts";
import type { OutputParser } from "../../../engines/text/parse/tool-format.ts";
import type { OutputChecks, PreparedAnswer } from "../../text-tasks/prepare.ts";

export interface OutputPlan {
  /** null: all text is content. */
  readonly createParser: (() => OutputParser) | null;
  /** Control tokens that count as text. */
  readonly shownTokens: ReadonlySet<number>;
  /** The answer ends with its first call. */
  readonly endsWithCall: boolean;
  readonly checks: OutputChecks | null;
  /** The text of a call as the model wrote it. */
  readonly writeCall: (name: string, args: string) => string;
}

export function answerPlan({ format: named, isParsed, tools, startsThinking, ...rest }: PreparedAnswer): OutputPlan {
  const format = named === null ? null : formatNamed(named);
  const options = { tools: tools?.specs ?? [], startsThinking };
  return {
    createParser: format !== null && isParsed ? () => format.createParser(options) : null,
    shownTokens: new Set(rest.shownTokens),
    endsWithCall: tools?.parallel === false,
    checks: rest.checks,
    writeCall: (name, args) => {
      if (format === null) return args;
      const { open, close, before, after } = format.syntax;
      return open + before(name) + args + after(name) + close;
    },
  };
}
