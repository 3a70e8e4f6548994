// Page of the models that run in this browser: the files it keeps, and the one that is loaded.
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { bytes, number } from "../../base/times.ts";
import { contextTokens, loadLocal, localModel, obstacle, threads, unloadLocal } from "../../local/local-model.ts";
import { dropModel, keepModel, keptModels, readKeptModels } from "../../local/model-files.ts";
import { Table } from "../table.tsx";
import { type KeepModel, ServerModels } from "./server-models.tsx";

/** A model that is being copied into the browser. `bytes`: 0 until the copy has begun. */
interface Copying {
  readonly name: string;
  readonly bytes: number;
  readonly done: number;
  readonly stop: AbortController;
}

export function LocalPage() {
  const problem = obstacle();
  useEffect(() => {
    if (problem !== "noStorage") readKeptModels().catch(notifyError);
  }, []);
  return (
    <div class="page">
      <h1>{t("pageLocal")}</h1>
      <p>{t("localHelp")}</p>
      {problem === null ? <Models /> : <p role="alert">{t(problem)}</p>}
    </div>
  );
}

function Models() {
  const [copying, setCopying] = useState<Copying | null>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const state = localModel.value;
  const keep: KeepModel = async (name, open) => {
    const stop = new AbortController();
    setCopying({ name, stop, bytes: 0, done: 0 });
    try {
      const { stream, bytes: size } = await open(stop.signal);
      await keepModel(name, stream, size, stop.signal, (done) => setCopying({ name, stop, bytes: size, done }));
    } catch (error) {
      if (!stop.signal.aborted) notifyError(error);
    } finally {
      setCopying(null);
    }
  };
  const isLoading = state.status === "loading";
  return (
    <>
      <Table
        caption={t("keptModels")}
        none={keptModels.value === null ? t("loading") : t("noKeptModels")}
        heads={[t("model"), t("size"), t("status"), ""]}
        rows={(keptModels.value ?? []).map(({ name, bytes: size }) => {
          const isThis = state.status !== "none" && state.name === name;
          const isLoaded = isThis && state.status === "loaded";
          return {
            key: name,
            cells: [
              name,
              bytes(size),
              isThis ? <State key="state" /> : t("statusUnloaded"),
              <span key="actions" class="actions">
                <button
                  type="button"
                  class="button"
                  disabled={isLoading}
                  onClick={() => (isLoaded ? unloadLocal() : void loadLocal(name).catch(notifyError))}
                >
                  {isLoaded ? t("unload") : t("load")}
                </button>
                <Drop name={name} isUsed={isThis} />
              </span>,
            ],
          };
        })}
      />
      {copying !== null && (
        <p>
          {t("copying", { name: copying.name })}{" "}
          <progress
            aria-label={t("copying", { name: copying.name })}
            {...(copying.bytes > 0 && { max: copying.bytes, value: copying.done })}
          />{" "}
          {bytes(copying.done)} / {bytes(copying.bytes)}{" "}
          <button type="button" class="button" onClick={() => copying.stop.abort()}>
            {t("cancel")}
          </button>
        </p>
      )}
      <p class="actions">
        <input
          ref={chooser}
          type="file"
          accept=".gguf"
          aria-label={t("addFromDisk")}
          hidden
          onChange={({ currentTarget }) => {
            const file = currentTarget.files?.[0];
            if (file !== undefined) void keep(file.name, async () => ({ stream: file.stream(), bytes: file.size }));
            currentTarget.value = "";
          }}
        />
        <button type="button" class="button main" disabled={copying !== null} onClick={() => chooser.current?.click()}>
          {t("addFromDisk")}
        </button>
      </p>
      <ServerModels isDisabled={copying !== null} onKeep={keep} />
      <Limits />
    </>
  );
}

function State() {
  const state = localModel.value;
  if (state.status === "loading") {
    return <progress aria-label={t("statusLoading")} max={1} value={state.fraction} />;
  }
  if (state.status === "failed") return <span role="alert">{state.problem}</span>;
  if (state.status === "none") return <>{t("statusUnloaded")}</>;
  const { description, engine, threads: count, weightBytes, kvCacheBytes, contextTokens: context } = state.facts;
  const facts = { description, engine, threads: count, context: number(context) };
  return (
    <span>
      {t("statusLoaded")}: {t("localFacts", facts)};{" "}
      {t("localMemory", { weights: bytes(weightBytes), cache: bytes(kvCacheBytes) })}
    </span>
  );
}

function Drop({ name, isUsed }: { readonly name: string; readonly isUsed: boolean }) {
  const [isSure, setSure] = useState(false);
  const press = (): void => {
    setSure(!isSure);
    if (!isSure) return;
    if (isUsed) unloadLocal();
    dropModel(name).catch(notifyError);
  };
  return (
    <button type="button" class={isSure ? "button danger" : "button"} onClick={press} onBlur={() => setSure(false)}>
      {isSure ? t("reallySure", { action: t("delete") }) : t("delete")}
    </button>
  );
}

/** Settings of the next load. */
function Limits() {
  const most = navigator.hardwareConcurrency;
  return (
    <section aria-label={t("settings")} class="limits">
      <h2>{t("settings")}</h2>
      <label class="field">
        <span>{t("localThreads", { cores: most })}</span>
        <input
          type="number"
          min={1}
          max={most}
          value={threads.value}
          onChange={({ currentTarget }) => take(currentTarget, (value) => (threads.value = value))}
        />
      </label>
      <label class="field">
        <span>{t("localContext")}</span>
        <input
          type="number"
          min={256}
          max={131_072}
          step={256}
          value={contextTokens.value}
          onChange={({ currentTarget }) => take(currentTarget, (value) => (contextTokens.value = value))}
        />
      </label>
      <p class="quiet">{t("nextLoad")}</p>
    </section>
  );
}

/** Takes a number if the browser finds it valid; it shows the reason if not. */
function take(input: HTMLInputElement, set: (value: number) => void): void {
  if (input.reportValidity() && input.value !== "") set(input.valueAsNumber);
}
