// Output plan: how to parse and check the text of each choice of a request. It is built from the plain
// data that a text worker returns.
import { formatNamed } from "../../../engines/text/parse/choose-format.ts";
import type { OutputParser } from "../../../engines/text/parse/tool-format.ts";
import type { OutputChecks, PreparedAnswer } from "../../text-tasks/prepare.ts";

export interface OutputPlan {
  /** Creates the parser of an output; null = all text is content. */
  readonly createParser: (() => OutputParser) | null;
  /** Ids of control tokens whose text is part of the output. */
  readonly shownTokens: ReadonlySet<number>;
  /** Whether the output ends with its first tool call. */
  readonly endsWithCall: boolean;
  readonly checks: OutputChecks | null;
  /** Returns the text of a tool call in the model's format. */
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
