// Tool: a function of the embedding program that models may call. The server runs the function and passes the result to the
// model.
import type { z } from "zod";

/** JSON schema of an object. */
export interface ObjectSchema {
  readonly type: "object";
  readonly [keyword: string]: unknown;
}

/** A zod schema of an object (zod 4), or a JSON schema (draft 2020-12). */
export type ToolSchema = z.ZodObject | ObjectSchema;

/** Arguments of a call: the parsed output of a zod schema, or an object that matches a JSON schema. */
export type ToolArguments<Schema extends ToolSchema> = Schema extends z.ZodObject
  ? z.output<Schema>
  : Readonly<Record<string, unknown>>;

export interface ToolContext {
  /** Id of the session of the run. All requests of a session have the same id. */
  readonly session: string;
  /** Aborted if the call takes too long or its client has disconnected. The result of an aborted call is dropped. */
  readonly signal: AbortSignal;
  /**
   * Reports the progress of the call to the client, in the response stream. `total`: value of `progress` when the call is
   * complete.
   */
  readonly progress: (done: {
    readonly progress: number;
    readonly total?: number | undefined;
    readonly message?: string | undefined;
  }) => void;
}

/**
 * Result with images; each image is the bytes of a PNG file. The model gets only `content`; the client also gets the images.
 */
export interface IllustratedResult {
  readonly content: string;
  readonly images: readonly Uint8Array[];
}

/** Text, a value that JSON can represent, or text with images. */
export type ToolResult = string | number | boolean | null | object | IllustratedResult;

export interface ToolDefinition<Schema extends ToolSchema> {
  /**
   * Name for the model: 1 to 64 letters, digits, "_" and "-". Names that begin with `service_` are reserved for
   * troupe's tools.
   */
  readonly name: string;
  /** Tells the model what the tool does and when to use it. */
  readonly description: string;
  readonly schema: Schema;
  /** Time limit of a call in milliseconds; default: 60000. */
  readonly timeoutMs?: number | undefined;
  /**
   * Runs a call. The arguments match the schema. Tool calls in the same model answer run in parallel. If `run` rejects, the
   * model gets the message of the error as the result.
   */
  run(args: ToolArguments<Schema>, context: ToolContext): ToolResult | Promise<ToolResult>;
}

/**
 * A tool for `createTroupe({ tools })`, as returned by `tool`. The argument type of `run` is lost here, because each tool
 * has its own.
 */
export interface Tool extends Omit<ToolDefinition<ToolSchema>, "run"> {
  run(args: never, context: ToolContext): ToolResult | Promise<ToolResult>;
}

/** Defines a tool. Infers the arguments of `run` from the schema. `createTroupe` checks the definition. */
export function tool<Schema extends ToolSchema>(definition: ToolDefinition<Schema>): Tool {
  return definition;
}
