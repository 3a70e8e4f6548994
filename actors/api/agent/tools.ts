// Built-in tools: the interface between the agent loop and the tools thread (actors/tools), which runs code and shell commands
// in the sandbox. A session has one work folder and at most one Python process.
import type { FileToStore } from "./files.ts";

/** Tools that the tools thread runs. */
export type SandboxedTool = "execute_python" | "reset_python_session" | "shell" | "surface_outputs";

/** Maximum number of bytes of a result that the model reads, without the list of files. */
export const maxResultBytes = 32_768;

export interface ToolRun {
  /** Id of the call, unique among all running calls. */
  readonly id: string;
  readonly session: string;
  readonly client: string;
  /** Id of the run, round, and number of the request in its session (from 0). */
  readonly run: string;
  readonly round: number;
  readonly turn: number;
  readonly tool: SandboxedTool;
  /** Arguments as JSON text, as the model wrote it. It may be invalid. */
  readonly arguments: string;
  /** Files that the request expects (`files[]`). Those that exist after the call are returned with the outcome. */
  readonly expected: readonly { readonly name: string; readonly format: string | null }[];
}

/** Outcome of a tool call. An error of the model or of the tool is an outcome, not an exception. */
export interface ToolOutcome {
  readonly status: "success" | "error" | "timeout" | "cancelled";
  /** Result for the model: JSON text of at most maxResultBytes bytes. Longer texts in it are shortened, with a note. */
  readonly content: string;
  /** Fields of the progress event's `data`, for example stdout and exit_code; spec: Tool progress event data. */
  readonly data: Readonly<Record<string, unknown>>;
  /** Base64 of PNG images. */
  readonly images: readonly string[];
  /** Base64 of PNG frames of videos. */
  readonly videoFrames: readonly string[];
  /** Files to store, without ids: the staged copies of created files, and failures for files that the call names. */
  readonly files: readonly FileToStore[];
}

/** A file to copy into a session's work folder. The original file is only read. */
export interface FileToMount {
  /** File name within the work folder: no folders. */
  readonly name: string;
  /** Path of the content. */
  readonly path: string;
}

/** A skill to copy for a session. `state`: SkillContent.state. */
export interface SkillToMount {
  readonly name: string;
  readonly folder: string;
  readonly state: string;
}

export interface Tools {
  /**
   * Runs a call. Calls of one session run one after another if they share its Python process; shell commands run in parallel.
   */
  run(call: ToolRun): Promise<ToolOutcome>;
  /** Ends a running call at once: its processes are killed. Its outcome is `cancelled`. */
  cancel(message: { readonly id: string }): void;
  /** Copies files into the work folder of a session. A file that exists already is replaced. */
  mount(message: { readonly session: string; readonly files: readonly FileToMount[] }): Promise<void>;
  /**
   * Replaces the skills of a session. Returns the path, as the tools of the session see it, of a read-only folder with
   * one subfolder for each skill, named after the skill.
   */
  mountSkills(message: {
    readonly session: string;
    readonly skills: readonly SkillToMount[];
  }): Promise<{ readonly folder: string }>;
  /** Ends the processes of a session and removes its work folder. */
  closeSession(message: { readonly session: string }): Promise<void>;
}
