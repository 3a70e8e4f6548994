// Chat templates of a folder: found in up to three places, copied as strings, never rendered.
import type { JsonField } from "../../json-field.ts";
import type { TokenizerFolder } from "./source/tokenizer-folder.ts";
import type { Pairs } from "./token-pairs.ts";

const templateKey = "tokenizer.chat_template";
const templateFolder = "additional_chat_templates";
const maxTemplateBytes = 4 * 2 ** 20;
const maxTemplates = 256;
const maxName = 64;

/** Adds the templates to `pairs`. A template file takes precedence over a field of a config, as in the transformers library. */
export async function setChatTemplates(pairs: Pairs, folder: TokenizerFolder, config: JsonField | null): Promise<void> {
  const templates = (await fileTemplates(folder)) ?? (await fieldTemplates(folder, config));
  const named = new Map<string, string>();
  for (const [name, template] of templates) {
    if (name === "default") pairs.set(templateKey, { type: "string", value: template });
    else named.set(name.slice(0, maxName).replaceAll(/[^A-Za-z0-9]/g, "_"), template);
  }
  for (const [name, value] of named) pairs.set(`${templateKey}.${name}`, { type: "string", value });
  if (named.size > 0) pairs.set(`${templateKey}s`, { type: "array", of: "string", value: [...named.keys()] });
}

type Templates = readonly (readonly [name: string, template: string])[];

async function fileTemplates(folder: TokenizerFolder): Promise<Templates | null> {
  const template = await folder.text("chat_template.jinja", maxTemplateBytes);
  if (template === null) return null;
  const templates: (readonly [string, string])[] = [["default", template]];
  for (const name of await folder.names(templateFolder)) {
    if (!name.endsWith(".jinja")) continue;
    const text = await folder.text(`${templateFolder}/${name}`, maxTemplateBytes);
    if (text !== null) templates.push([name.slice(0, -".jinja".length), text]);
  }
  return templates;
}

async function fieldTemplates(folder: TokenizerFolder, config: JsonField | null): Promise<Templates> {
  const field = config?.get("chat_template");
  if (field !== undefined && !field.isAbsent) return templatesIn(field);
  const other = await folder.json("chat_template.json");
  return other === null ? [] : templatesIn(other.get("chat_template"));
}

/** Returns the templates of a field: one string, or a list of named ones. */
function templatesIn(field: JsonField): Templates {
  if (!Array.isArray(field.value)) {
    const template = field.text();
    return template === null ? [] : [["default", template]];
  }
  return field.elements(maxTemplates).map((entry) => {
    const [name, template] = [entry.get("name"), entry.get("template")];
    return [name.required(name.text()), template.required(template.text())] as const;
  });
}
