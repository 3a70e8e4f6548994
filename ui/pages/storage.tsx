// Page of the server's storage: files, stored responses and sessions.
import { t } from "../base/language.ts";
import { bytes, moment, number } from "../base/times.ts";
import { shortName } from "../server/models.ts";
import { type Polled, usePolled } from "./polled.ts";
import { Remove } from "./remove.tsx";
import { Table } from "./table.tsx";

const everyMs = 5000;
const mostRows = 100;

interface List<T> {
  readonly data: readonly T[];
}

interface FileEntry {
  readonly id: string;
  readonly name?: string;
  readonly filename?: string;
  readonly bytes: number;
  /** Time of creation in seconds since 1970. */
  readonly created_at: number;
}

interface ResponseEntry {
  readonly id: string;
  readonly created_at: number;
  readonly status: string;
  readonly model: string | null;
  readonly input: string | null;
  readonly output: string | null;
}

interface SessionEntry {
  readonly id: string;
  readonly turns: number;
  readonly messages: number;
  readonly files: number;
  readonly last_used_at: number;
  readonly bytes: number;
}

export function StoragePage() {
  return (
    <div class="page">
      <h1>{t("pageStorage")}</h1>
      <Files />
      <Responses />
      <Sessions />
    </div>
  );
}

function Files() {
  const files = usePolled<List<FileEntry>>(`v1/files?limit=${mostRows}`, everyMs);
  return (
    <Table
      caption={t("files")}
      none={noneOf(files, t("noFiles"))}
      heads={[t("name"), t("size"), t("created"), ""]}
      rows={(files.value?.data ?? []).map(({ id, name, filename, bytes: size, created_at }) => ({
        key: id,
        cells: [
          name ?? filename ?? id,
          bytes(size),
          moment(created_at * 1000),
          <Remove key="delete" path={`v1/files/${id}`} onDone={files.refresh} />,
        ],
      }))}
    />
  );
}

function Responses() {
  const responses = usePolled<List<ResponseEntry>>(`v1/responses?limit=${mostRows}`, everyMs);
  return (
    <Table
      caption={t("responses")}
      none={noneOf(responses, t("noResponses"))}
      heads={[t("question"), t("answer"), t("model"), t("status"), t("created"), ""]}
      rows={(responses.value?.data ?? []).map(({ id, created_at, status, model, input, output }) => ({
        key: id,
        cells: [
          (input ?? "").slice(0, 80),
          (output ?? "").slice(0, 80),
          shortName(model ?? ""),
          status,
          moment(created_at * 1000),
          <Remove key="delete" path={`v1/responses/${id}`} onDone={responses.refresh} />,
        ],
      }))}
    />
  );
}

function Sessions() {
  const sessions = usePolled<List<SessionEntry>>(`v1/sessions?limit=${mostRows}`, everyMs);
  return (
    <Table
      caption={t("sessions")}
      none={noneOf(sessions, t("noSessions"))}
      heads={[t("name"), t("messages"), t("files"), t("size"), t("lastUsed"), ""]}
      rows={(sessions.value?.data ?? []).map(({ id, messages, files, bytes: size, last_used_at }) => ({
        key: id,
        cells: [
          id,
          number(messages),
          number(files),
          bytes(size),
          moment(last_used_at * 1000),
          <Remove key="delete" path={`v1/sessions/${id}`} onDone={sessions.refresh} />,
        ],
      }))}
    />
  );
}

function noneOf({ value, error }: Polled<unknown>, none: string): string {
  return error?.message ?? (value === null ? t("loading") : none);
}
