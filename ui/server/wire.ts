// Types of the server's responses, with only the fields that the UI reads.

/** Part of a message item's content. */
export interface TextPart {
  readonly type: "output_text" | "refusal" | "reasoning_text" | "summary_text" | "input_text";
  readonly text?: string;
  readonly refusal?: string;
  readonly annotations?: readonly Annotation[];
  readonly logprobs?: readonly TokenLogprob[];
}

export interface Annotation {
  readonly type: string;
  readonly url?: string;
  readonly title?: string;
  readonly start_index?: number;
  readonly end_index?: number;
}

export interface TokenLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly top_logprobs: readonly { readonly token: string; readonly logprob: number }[];
}

/** Output item of a response. Its other fields depend on the type; they are sent back to the server unchanged. */
export interface OutputItem {
  readonly type: string;
  readonly id?: string;
  readonly status?: string;
  readonly content?: readonly TextPart[] | null;
  readonly [field: string]: unknown;
}

export interface Usage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly total_tokens: number;
  readonly input_tokens_details?: { readonly cached_tokens: number };
  readonly output_tokens_details?: { readonly reasoning_tokens: number };
}

export interface ResponseBody {
  readonly id: string;
  readonly status: "queued" | "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";
  readonly model: string;
  readonly output: readonly OutputItem[];
  readonly error: { readonly message: string; readonly code: string } | null;
  readonly incomplete_details: { readonly reason: string } | null;
  readonly usage: Usage | null;
  readonly session_id?: string;
}

export interface ModelEntry {
  readonly id: string;
  readonly status?: string;
  readonly [field: string]: unknown;
}

export interface ProducedFile {
  readonly id: string;
  readonly name: string;
  readonly [field: string]: unknown;
}

export interface Approval {
  readonly approval_id: string;
  readonly session_id: string;
  readonly round: number;
  readonly tool: { readonly source: string; readonly kind: string; readonly label: string };
  readonly arguments: unknown;
}

export interface ToolProgress {
  readonly round: number;
  readonly tool_name: string;
  readonly phase: "calling" | "complete";
  readonly data: Readonly<Record<string, unknown>>;
}
