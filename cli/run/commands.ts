// Commands of the REPL: their names, effect on the conversation, help and completion. The REPL prints the replies.

import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";
import type { Config } from "../config/config.ts";
import { fieldLines, fieldNames, unsetWord, withField } from "./answer-fields.ts";
import type { Conversation } from "./conversation.ts";
import { saveTranscript } from "./transcript.ts";

/** Text to print after a command; null to exit the REPL. */
export type CommandReply = string | null;

interface ReplCommand {
  readonly arguments: string;
  readonly help: string;
  run(argument: string, conversation: Conversation): CommandReply | Promise<CommandReply>;
}

const commands: Readonly<Record<string, ReplCommand>> = {
  "/help": { arguments: "", help: "Show this help", run: () => helpText() },
  "/system": {
    arguments: "[TEXT]",
    help: 'Set the system prompt; without TEXT, show it; /system "" removes it',
    run: setSystem,
  },
  "/set": {
    arguments: "[NAME VALUE]",
    help: `Set a sampling field or max_tokens; VALUE "${unsetWord}" unsets it; without NAME, list them`,
    run: setField,
  },
  "/clear": { arguments: "", help: "Clear the conversation; the system prompt stays", run: clear },
  "/save": {
    arguments: "FILE",
    help: "Save the conversation: .json as a chat request, else Markdown; /save! overwrites",
    run: (file, conversation) => save(file, conversation, false),
  },
  "/model": { arguments: "[ID]", help: "Switch to another model; without ID, list the models", run: switchModel },
  "/adapter": {
    arguments: "[ALIAS|none]",
    help: "Switch to a LoRA adapter of the model, or to none; without ALIAS, list the adapters",
    run: switchAdapter,
  },
  "/exit": { arguments: "", help: "Exit; so does ctrl-d", run: () => null },
};

/** Variants of commands. They have no help line of their own, because the help line of the command describes them. */
const variants: Readonly<Record<string, ReplCommand["run"]>> = {
  "/save!": (file, conversation) => save(file, conversation, true),
};

const names = [...Object.keys(commands), ...Object.keys(variants)];

/**
 * Returns whether a message is a command. Only /system accepts several lines. Any other text of several lines is a message,
 * even if it begins with a path such as /tmp.
 */
export function isCommand(text: string): boolean {
  return text.startsWith("/") && (!text.includes("\n") || split(text).name === "/system");
}

/** Name that `/adapter` uses for the base model. */
const noAdapter = "none";

/** Runs a command. Throws ServerError if it is unknown or fails. */
export async function runCommand(text: string, conversation: Conversation): Promise<CommandReply> {
  const { name, argument } = split(text);
  const run = commands[name]?.run ?? variants[name];
  if (run === undefined) {
    const found = suggestion(name, names) || "; /help lists them";
    throw invalid(`unknown command "${name}"${found} (put a space before "/" to send it as a message)`);
  }
  return run(argument, conversation);
}

/** Returns the completions of a line and the part of it that they replace, in the form that readline expects. */
export function completeCommand(line: string, conversation: Conversation): [string[], string] {
  const modelId = /^\/model\s+(.*)$/.exec(line)?.[1];
  if (modelId !== undefined) return [conversation.models.filter((id) => id.startsWith(modelId)), modelId];
  const alias = /^\/adapter\s+(.*)$/.exec(line)?.[1];
  if (alias !== undefined) return [[...conversation.adapters, noAdapter].filter((one) => one.startsWith(alias)), alias];
  const field = /^\/set\s+(\S*)$/.exec(line)?.[1];
  if (field !== undefined) return [fieldNames.filter((name) => name.startsWith(field)), field];
  if (!line.startsWith("/") || line.includes(" ")) return [[], line];
  return [Object.keys(commands).filter((name) => name.startsWith(line)), line];
}

function split(text: string): { name: string; argument: string } {
  const [name = ""] = text.split(/\s/, 1);
  return { name, argument: text.slice(name.length).trim() };
}

function helpText(): string {
  const lines = Object.entries(commands).map(([name, command]) => {
    return `${`${name} ${command.arguments}`.padEnd(22)}${command.help}`;
  });
  return [
    ...lines,
    "",
    'A line that ends in \\ continues on the next line; """ begins and ends a message of several lines; a paste is one message.',
    "Ctrl-c stops an answer and keeps the text so far; at the prompt it clears the line.",
  ].join("\n");
}

function setSystem(text: string, conversation: Conversation): string {
  if (text === "") return conversation.system ?? "no system prompt; /system TEXT sets one";
  conversation.system = text === '""' ? null : text;
  const done = conversation.system === null ? "system prompt removed" : "system prompt set";
  return conversation.turns.length === 0 ? done : `${done}; the conversation continues (/clear empties it)`;
}

function setField(argument: string, conversation: Conversation): string {
  const { fields, defaults } = conversation;
  const [name = "", value, ...more] = argument.split(/[\s=]+/);
  if (name === "") return fieldLines(fields, defaults).join("\n");
  if (value === undefined || more.length > 0) {
    throw invalid(`/set expects a name and a value, such as /set temperature 0.7; got ${JSON.stringify(argument)}`);
  }
  conversation.fields = withField(fields, name, value);
  return value === unsetWord ? `${name} has the default of the model` : `${name} is ${value}`;
}

function clear(_argument: string, conversation: Conversation): string {
  conversation.clear();
  return conversation.system === null ? "conversation cleared" : "conversation cleared; the system prompt stays";
}

async function save(file: string, conversation: Conversation, overwrite: boolean): Promise<string> {
  if (file === "") throw invalid("/save expects a file, such as chat.md or chat.json; got none");
  return `saved to ${await saveTranscript(conversation, file, overwrite)}`;
}

function switchModel(id: string, conversation: Conversation): string {
  if (id === "")
    return conversation.models.map((model) => `${model === conversation.model ? "*" : " "} ${model}`).join("\n");
  conversation.useModel(id);
  return `the model is ${id}${goesOn(conversation)}`;
}

/** Throws config_invalid if the alias of an adapter equals the name that `/adapter` uses for the base model. */
export function checkAliases({ models }: Pick<Config, "models">): void {
  if (!models.some((model) => model.adapter.lora.some(({ alias }) => alias === noAdapter))) return;
  const message = `lora expects an alias other than "${noAdapter}", which /adapter uses for the base model; choose another alias`;
  throw new ServerError("config_invalid", message, { param: "lora" });
}

function switchAdapter(alias: string, conversation: Conversation): string {
  if (alias === "") return adapterList(conversation);
  conversation.useAdapter(alias === noAdapter ? null : alias);
  const done = alias === noAdapter ? "no adapter: the base model answers" : `the adapter is ${alias}`;
  return `${done}${goesOn(conversation)}`;
}

function adapterList({ adapters, adapter }: Conversation): string {
  if (adapters.length === 0) return "the model has no adapters; --lora ALIAS=SOURCE loads one at start";
  const line = (shown: string, isUsed: boolean) => `${isUsed ? "*" : " "} ${shown}`;
  return [line(noAdapter, adapter === null), ...adapters.map((alias) => line(alias, alias === adapter))].join("\n");
}

function goesOn({ turns }: Conversation): string {
  return turns.length === 0 ? "" : "; the conversation continues";
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_value", message);
}
