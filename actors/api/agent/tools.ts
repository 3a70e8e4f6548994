// Built-in tools: the interface between the agent loop and the tools process (actors/tools), which runs code and shell commands
// in the sandbox. A session has one work folder and at most one Python process.
import type { FileToStore } from "./files.ts";

/** Tools that run in the tools process. */
export type SandboxedTool = "execute_python" | "reset_python_session" | "shell" | "surface_outputs";

/** Maximum size in bytes of a result for the model, without the list of files. */
export const maxResultBytes = 32_768;

export interface ToolRun {
  /** Id of the call, unique among all running calls. */
  readonly id: string;
  readonly session: string;
  readonly client: string;
  /** Run id, round number, and index of the request within its session (from 0). */
  readonly run: string;
  readonly round: number;
  readonly turn: number;
  readonly tool: SandboxedTool;
  /** Arguments as JSON text written by the model, possibly invalid. */
  readonly arguments: string;
  /** Files that the request expects (`files[]`). The ones that exist after the call are returned with the outcome. */
  readonly expected: readonly { readonly name: string; readonly format: string | null }[];
}

/** Outcome of a tool call. Errors of the model or of the tool are outcomes, not exceptions. */
export interface ToolOutcome {
  readonly status: "success" | "error" | "timeout" | "cancelled";
  /** Result for the model: JSON text of at most maxResultBytes bytes. Longer strings in it are shortened, with a note. */
  readonly content: string;
  /** Fields of the progress event's `data`, for example stdout and exit_code; spec: Tool progress event data. */
  readonly data: Readonly<Record<string, unknown>>;
  /** PNG images, in base64. */
  readonly images: readonly string[];
  /** Video frames as PNG, in base64. */
  readonly videoFrames: readonly string[];
  /**
   * Files to store, whose ids are not set yet: staged copies of created files, and entries with a `failure` for files that the
   * call names but that are missing or cannot be stored.
   */
  readonly files: readonly FileToStore[];
}

/** A file to copy into a session's work folder. The original file is only read. */
export interface FileToMount {
  /** File name in the work folder, without folders. */
  readonly name: string;
  /** Path of the file to copy. */
  readonly path: string;
}

/** A skill to copy into a session. `state`: string that changes when the skill's files change (SkillContent.state). */
export interface SkillToMount {
  readonly name: string;
  readonly folder: string;
  readonly state: string;
}

export interface Tools {
  /** Runs a call. Python calls of one session share a process, so they run one after another; shell commands run in parallel. */
  run(call: ToolRun): Promise<ToolOutcome>;
  /** Kills the processes of a running call at once. The call's outcome is `cancelled`. */
  cancel(message: { readonly id: string }): void;
  /** Copies files into the work folder of a session. Existing files are replaced. */
  mount(message: { readonly session: string; readonly files: readonly FileToMount[] }): Promise<void>;
  /**
   * Replaces the skills of a session. Returns the path, as seen by the session's tools, of a read-only folder with one subfolder
   * per skill, named after the skill.
   */
  mountSkills(message: {
    readonly session: string;
    readonly skills: readonly SkillToMount[];
  }): Promise<{ readonly folder: string }>;
  /** Ends the processes of a session and removes its work folder. */
  closeSession(message: { readonly session: string }): Promise<void>;
}
