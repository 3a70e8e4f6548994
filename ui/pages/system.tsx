// Page with system information: the machine, the build, the engines, and the diagnostic checks (doctor).
import { useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { bytes, number } from "../base/times.ts";
import { ask } from "../server/client.ts";
import { usePolled } from "./polled.ts";
import { Settings } from "./settings.tsx";
import { Table } from "./table.tsx";

interface SystemInfo {
  readonly os: string;
  readonly cpu: { readonly brand: string; readonly logical_cores: number };
  readonly memory: { readonly total_bytes: number; readonly available_bytes: number };
  readonly devices: readonly {
    readonly kind: string;
    readonly name: string;
    readonly total_memory_bytes: number;
    readonly available_memory_bytes: number;
  }[];
  readonly build: { readonly version: string; readonly git_revision: string };
  readonly engines: readonly { readonly model: string; readonly engine: string; readonly reason: string }[];
}

interface Check {
  readonly name: string;
  readonly status: "ok" | "warn" | "error";
  readonly message: string;
  readonly suggestion?: string;
}

export function SystemPage() {
  const { value: info, error } = usePolled<SystemInfo>("v1/system/info", 10_000);
  return (
    <div class="page">
      <h1>{t("pageSystem")}</h1>
      {info === null ? <p class="loading">{error?.message ?? t("loading")}</p> : <Facts info={info} />}
      <Doctor />
      <Settings />
    </div>
  );
}

function Facts({ info: { os, cpu, memory, devices, build, engines } }: { readonly info: SystemInfo }) {
  return (
    <>
      <dl class="facts">
        <dt>{t("version")}</dt>
        <dd>
          {build.version} ({build.git_revision.slice(0, 12)})
        </dd>
        <dt>{t("system")}</dt>
        <dd>{os}</dd>
        <dt>{t("processor")}</dt>
        <dd>
          {cpu.brand}, {t("cores", { count: number(cpu.logical_cores) })}
        </dd>
        <dt>{t("memory")}</dt>
        <dd>{t("freeOf", { free: bytes(memory.available_bytes), total: bytes(memory.total_bytes) })}</dd>
      </dl>
      <Table
        caption={t("devices")}
        none=""
        heads={[t("name"), t("kind"), t("memory")]}
        rows={devices.map(({ kind, name, total_memory_bytes, available_memory_bytes }, i) => ({
          key: String(i),
          cells: [name, kind, t("freeOf", { free: bytes(available_memory_bytes), total: bytes(total_memory_bytes) })],
        }))}
      />
      <Table
        caption={t("engines")}
        none={t("noModels")}
        heads={[t("model"), t("engine"), t("reason")]}
        rows={engines.map(({ model, engine, reason }) => ({ key: model, cells: [model, engine, reason] }))}
      />
    </>
  );
}

/** Diagnostic checks. They take several seconds, so they run only on request. */
function Doctor() {
  const [checks, setChecks] = useState<readonly Check[] | null>(null);
  const [isRunning, setRunning] = useState(false);
  const run = async (): Promise<void> => {
    setRunning(true);
    try {
      setChecks((await ask<{ readonly checks: readonly Check[] }>("v1/system/doctor", { method: "POST" })).checks);
    } catch (error) {
      notifyError(error);
    } finally {
      setRunning(false);
    }
  };
  return (
    <>
      <div class="actions">
        <button type="button" class="button" disabled={isRunning} onClick={() => void run()}>
          {isRunning ? t("running") : t("runDoctor")}
        </button>
      </div>
      {checks !== null && (
        <Table
          caption={t("doctor")}
          none=""
          heads={[t("status"), t("name"), t("finding")]}
          rows={checks.map(({ name, status, message, suggestion }) => ({
            key: `${name} ${message}`,
            cells: [
              <span key="status" class={`status ${status}`}>
                {status}
              </span>,
              name,
              suggestion === undefined ? message : `${message} — ${suggestion}`,
            ],
          }))}
        />
      )}
    </>
  );
}
