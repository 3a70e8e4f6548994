// Owns the commands of the REPL: their names, what each does to the conversation, their help and their completion. Called by
// the REPL, which prints what they say.

import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";
import type { Config } from "../config/config.ts";
import type { Conversation } from "./conversation.ts";
import { saveTranscript } from "./transcript.ts";

/** What is to be printed; null leaves the REPL. */
export type CommandReply = string | null;

interface ReplCommand {
  readonly arguments: string;
  readonly help: string;
  run(argument: string, conversation: Conversation): CommandReply | Promise<CommandReply>;
}

const commands: Readonly<Record<string, ReplCommand>> = {
  "/help": { arguments: "", help: "Show this", run: () => helpText() },
  "/system": {
    arguments: "[TEXT]",
    help: 'Set the system prompt; without TEXT show it; /system "" removes it',
    run: setSystem,
  },
  "/clear": { arguments: "", help: "Forget what was said; the system prompt stays", run: clear },
  "/save": {
    arguments: "FILE",
    help: "Write the conversation: .json as a chat request, else Markdown; /save! overwrites",
    run: (file, conversation) => save(file, conversation, false),
  },
  "/model": { arguments: "[ID]", help: "Go on with another loaded model; without ID list them", run: switchModel },
  "/adapter": {
    arguments: "[ALIAS|none]",
    help: "Go on with a LoRA adapter of the model, or with none; without ALIAS list them",
    run: switchAdapter,
  },
  "/exit": { arguments: "", help: "Leave; so does ctrl-d", run: () => null },
};

/** Commands that have a help line of their own elsewhere. */
const variants: Readonly<Record<string, ReplCommand["run"]>> = {
  "/save!": (file, conversation) => save(file, conversation, true),
};

const names = [...Object.keys(commands), ...Object.keys(variants)];

/** Whether a message is meant as a command. Text of several lines may begin with a path: only /system takes such text. */
export function isCommand(text: string): boolean {
  return text.startsWith("/") && (!text.includes("\n") || split(text).name === "/system");
}

/** What `/adapter` calls the base model. */
const noAdapter = "none";

/** Carries out a command. Throws ServerError for an unknown one, and for one that cannot be done. */
export async function runCommand(text: string, conversation: Conversation): Promise<CommandReply> {
  const { name, argument } = split(text);
  const run = commands[name]?.run ?? variants[name];
  if (run === undefined) {
    const found = suggestion(name, names) || "; /help lists them";
    throw invalid(`unknown command "${name}"${found} (a message may begin with "/" behind a space)`);
  }
  return run(argument, conversation);
}

/** What a line can be completed to, and the part of it that this replaces: as readline wants it. */
export function completeCommand(line: string, conversation: Conversation): [string[], string] {
  const modelId = /^\/model\s+(.*)$/.exec(line)?.[1];
  if (modelId !== undefined) return [conversation.models.filter((id) => id.startsWith(modelId)), modelId];
  const alias = /^\/adapter\s+(.*)$/.exec(line)?.[1];
  if (alias !== undefined) return [[...conversation.adapters, noAdapter].filter((one) => one.startsWith(alias)), alias];
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
    'A line that ends in \\ goes on in the next; """ begins and ends a message of several lines; a paste is one message.',
    "Ctrl-c stops an answer and keeps what was said; at the prompt it clears the line.",
  ].join("\n");
}

function setSystem(text: string, conversation: Conversation): string {
  if (text === "") return conversation.system ?? "there is no system prompt; /system TEXT sets one";
  conversation.system = text === '""' ? null : text;
  const done = conversation.system === null ? "the system prompt is removed" : "the system prompt is set";
  return conversation.turns.length === 0 ? done : `${done}; the conversation goes on with it (/clear forgets that)`;
}

function clear(_argument: string, conversation: Conversation): string {
  conversation.clear();
  return conversation.system === null ? "forgotten" : "forgotten; the system prompt stays";
}

async function save(file: string, conversation: Conversation, overwrite: boolean): Promise<string> {
  if (file === "") throw invalid("/save expects a file: /save chat.md or /save chat.json; got none");
  return `saved to ${await saveTranscript(conversation, file, overwrite)}`;
}

function switchModel(id: string, conversation: Conversation): string {
  if (id === "")
    return conversation.models.map((model) => `${model === conversation.model ? "*" : " "} ${model}`).join("\n");
  conversation.useModel(id);
  return `the model is ${id}${goesOn(conversation)}`;
}

/** Throws config_invalid where an adapter could not be told from none. */
export function checkAliases({ models }: Pick<Config, "models">): void {
  if (!models.some((model) => model.adapter.lora.some(({ alias }) => alias === noAdapter))) return;
  const message = `lora expects an alias other than "${noAdapter}", as /adapter calls the model without one; give it another`;
  throw new ServerError("config_invalid", message, { param: "lora" });
}

function switchAdapter(alias: string, conversation: Conversation): string {
  if (alias === "") return adapterList(conversation);
  conversation.useAdapter(alias === noAdapter ? null : alias);
  const done = alias === noAdapter ? "answers are the model's own" : `the adapter is ${alias}`;
  return `${done}${goesOn(conversation)}`;
}

function adapterList({ adapters, adapter }: Conversation): string {
  if (adapters.length === 0) return "the model has no adapters; --lora ALIAS=SOURCE loads one at the start";
  const line = (shown: string, isUsed: boolean) => `${isUsed ? "*" : " "} ${shown}`;
  return [line(noAdapter, adapter === null), ...adapters.map((alias) => line(alias, alias === adapter))].join("\n");
}

function goesOn({ turns }: Conversation): string {
  return turns.length === 0 ? "" : "; the conversation goes on";
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_value", message);
}
