// Models for the GPU of this machine: models stored in the browser, models of the server (setting web_models), and folders on
// the disk.
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { type GpuObstacle, gpuObstacle } from "../../local/gpu.ts";
import {
  copyingGpu,
  dropGpuModel,
  keepGpuModel,
  keptGpuModels,
  type ModelSource,
  readKeptGpuModels,
  type SourceFile,
} from "../../local/gpu-files.ts";
import { ask, isReachable, request } from "../../server/client.ts";
import { CopyProgress, KeptModels } from "./kept-models.tsx";

interface WebModel {
  readonly id: string;
  readonly files: readonly SourceFile[];
}

export function GpuModels() {
  const [problem, setProblem] = useState<GpuObstacle | "loading" | null>("loading");
  useEffect(() => {
    gpuObstacle().then(setProblem, notifyError);
    readKeptGpuModels().catch(() => {});
  }, []);
  return (
    <section aria-label={t("browserGpu")}>
      <h2>{t("browserGpu")}</h2>
      <p>{t("gpuHelp")}</p>
      {problem === null ? <Models /> : <p role="status">{t(problem)}</p>}
    </section>
  );
}

function Models() {
  const chooser = useRef<HTMLInputElement>(null);
  const copy = copyingGpu.value;
  const keep = (name: string, source: ModelSource) => void keepGpuModel(name, source).catch(notifyError);
  return (
    <>
      <KeptModels
        caption={t("keptGpuModels")}
        none={t("noKeptGpuModels")}
        device="gpu"
        models={keptGpuModels.value}
        onDrop={dropGpuModel}
      />
      {copy !== null && <CopyProgress copy={copy} />}
      <p class="actions">
        <input
          ref={(input) => {
            chooser.current = input;
            // Preact's types lack this attribute.
            input?.toggleAttribute("webkitdirectory", true);
          }}
          type="file"
          aria-label={t("addFolder")}
          hidden
          onChange={({ currentTarget }) => {
            const files = [...(currentTarget.files ?? [])];
            const name = files[0]?.webkitRelativePath.split("/")[0];
            if (name !== undefined) keep(name, folderSource(files));
            currentTarget.value = "";
          }}
        />
        <button type="button" class="button main" disabled={copy !== null} onClick={() => chooser.current?.click()}>
          {t("addFolder")}
        </button>
      </p>
      <ServerModels isDisabled={copy !== null} onKeep={keep} />
    </>
  );
}

interface ServerModelsProps {
  readonly isDisabled: boolean;
  readonly onKeep: (name: string, source: ModelSource) => void;
}

function ServerModels({ isDisabled, onKeep }: ServerModelsProps) {
  const [models, setModels] = useState<readonly WebModel[]>([]);
  useEffect(() => {
    ask<{ readonly data: readonly WebModel[] }>("v1/web_models").then(
      ({ data }) => setModels(data),
      // Local models also work while the server is unreachable, so that error is not shown.
      (error) => isReachable.value && notifyError(error),
    );
  }, []);
  if (models.length === 0) return <p class="quiet">{t("noWebModels")}</p>;
  return (
    <p class="actions">
      {models.map((model) => (
        <button
          key={model.id}
          type="button"
          class="button"
          disabled={isDisabled}
          onClick={() => onKeep(model.id, serverSource(model))}
        >
          {t("copyFromServer", { name: model.id })}
        </button>
      ))}
    </p>
  );
}

/** Creates a model source from the files of a folder on the disk. Files in subfolders are left out. */
function folderSource(all: readonly File[]): ModelSource {
  const files = new Map(
    all.filter(({ webkitRelativePath: path }) => path.split("/").length === 2).map((file) => [file.name, file]),
  );
  return {
    files: [...files.values()].map(({ name, size }) => ({ name, bytes: size })),
    open: async (name) => {
      const file = files.get(name) as File;
      return { stream: file.stream(), bytes: file.size };
    },
  };
}

function serverSource({ id, files }: WebModel): ModelSource {
  return {
    files,
    open: async (name, signal) => {
      const path = `v1/web_models/${encodeURIComponent(id)}/files/${encodeURIComponent(name)}`;
      const { body, headers } = await request(path, { signal });
      if (body === null) throw new Error("the server sent no content");
      return { stream: body, bytes: Number(headers.get("x-file-bytes")) };
    },
  };
}
