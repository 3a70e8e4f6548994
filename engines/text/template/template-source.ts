// Template source: finds the chat template of a model. It is the configured template, the template in the model file,
// or ChatML if the vocabulary has ChatML's tokens. Reads template files, but compiles nothing.
import { readFile } from "node:fs/promises";
import { ServerError } from "../../../runtime/errors.ts";
import type { TokenizerMetadata } from "../../files/gguf/metadata.ts";

const chatMl = `{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** Returns the template of a model without a configured one. Throws ServerError `unsupported` if there is none. */
export function modelTemplateSource(
  templates: ReadonlyMap<string, string>,
  tokenizer: Pick<TokenizerMetadata, "tokens">,
): string {
  const source = templates.get("default") ?? [...templates.values()][0];
  if (source !== undefined) return source;
  if (tokenizer.tokens.includes("<|im_start|>")) return chatMl;
  throw new ServerError(
    "unsupported",
    "the model file has no chat template; start the server with chat_template naming a .jinja file, or use text completions",
    { param: "messages" },
  );
}

/**
 * Reads the template that the configuration names. `jinja_explicit` names a Jinja file. `chat_template` names a .jinja
 * file, or a .json file with a "chat_template" member. Throws ServerError `config_invalid`.
 */
export async function loadTemplateOverride(path: string, key: "chat_template" | "jinja_explicit"): Promise<string> {
  const text = await readTemplateFile(path, key);
  if (key === "jinja_explicit" || path.endsWith(".jinja")) return text;
  if (path.endsWith(".json")) return templateInJson(text, path);
  throw invalid(key, `names ${path}; expected a .jinja file, or a .json file with a "chat_template" in it`);
}

async function readTemplateFile(path: string, key: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw invalid(
      key,
      `names ${path}, which cannot be read (${(error as NodeJS.ErrnoException).code}); check the path`,
      error,
    );
  }
}

function templateInJson(text: string, path: string): string {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw invalid("chat_template", `names ${path}, which is not valid JSON: ${(error as Error).message}`, error);
  }
  const source = (content as { chat_template?: unknown } | null)?.chat_template;
  if (typeof source === "string") return source;
  throw invalid("chat_template", `names ${path}, which has no "chat_template" string at its top level`);
}

function invalid(key: string, problem: string, cause?: unknown): ServerError {
  return new ServerError("config_invalid", `${key} ${problem}`, { param: key, cause });
}
