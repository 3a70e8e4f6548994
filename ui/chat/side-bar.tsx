// Side bar: the conversations by folder, the search, and the links to the other pages.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../base/button.tsx";
import { Icon, type IconName } from "../base/icon.tsx";
import { type Language, language, languages, t } from "../base/language.ts";
import { notify, notifyError } from "../base/notice.tsx";
import { hrefOf, route } from "../base/route.ts";
import type { TextKey } from "../base/texts/en.ts";
import { nextTheme, theme } from "../base/theme.ts";
import { moment } from "../base/times.ts";
import { conversations } from "../conversations/library.ts";
import type { Conversation } from "../conversations/records.ts";
import { type Hit, search } from "../conversations/search.ts";
import { exportJson, importJson, saveAs } from "../conversations/transfer.ts";
import { needsKey } from "../server/client.ts";
import { startConversation } from "./current.ts";

const narrow = matchMedia("(max-width: 700px)");
export const isOpen = signal(!narrow.matches);

const pages: readonly (readonly [page: string, icon: IconName, key: TextKey])[] = [
  ["models", "model", "pageModels"],
  ["local", "browser", "pageLocal"],
  ["activity", "chart", "pageActivity"],
  ["storage", "folder", "pageStorage"],
  ["system", "server", "pageSystem"],
];
const shownAtFirst = 100;

function closeIfNarrow(): void {
  if (narrow.matches) isOpen.value = false;
}

/** `foot`: additional buttons at the bottom. */
export function SideBar({ foot }: { readonly foot: ComponentChildren }) {
  const [words, setWords] = useState("");
  const [hits, setHits] = useState<readonly Hit[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      search(words, stop.signal)
        .then((found) => !stop.signal.aborted && setHits(found))
        .catch(notifyError);
    }, 150);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [words]);
  // On a narrow screen the side bar covers the page, so it closes when another page is opened.
  const { page, id } = route.value;
  useEffect(closeIfNarrow, [page, id]);
  if (!isOpen.value) return null;
  const start = (): void => {
    startConversation();
    closeIfNarrow();
  };
  return (
    <nav class="side-bar" aria-label={t("navigation")}>
      <header class="side-bar-head">
        <Button icon="menu" label={t("closeSideBar")} onPress={() => (isOpen.value = false)} />
        <strong>troupe</strong>
        <span class="space" />
        <Button icon="add" kind="main" label={t("newConversation")} onPress={start} />
      </header>
      <label class="search">
        <Icon name="search" />
        <input
          type="search"
          id="search"
          aria-label={t("search")}
          placeholder={t("search")}
          value={words}
          onInput={({ currentTarget }) => setWords(currentTarget.value)}
        />
      </label>
      <div class="conversations">{words.trim() === "" ? <Folders /> : <Hits hits={hits} />}</div>
      <ul class="pages">
        {pages.map(([page, icon, key]) => (
          <li key={page}>
            <a href={hrefOf(page)} {...(route.value.page === page && { "aria-current": "page" as const })}>
              <Icon name={icon} />
              {t(key)}
            </a>
          </li>
        ))}
      </ul>
      <Foot>{foot}</Foot>
    </nav>
  );
}

function Folders() {
  const [count, setCount] = useState(shownAtFirst);
  const shown = conversations.value.slice(0, count);
  const folders = new Map<string, Conversation[]>();
  for (const one of shown) folders.set(one.folder, [...(folders.get(one.folder) ?? []), one]);
  const names = [...folders.keys()].sort((one, other) =>
    one === "" ? 1 : other === "" ? -1 : one.localeCompare(other),
  );
  return (
    <>
      {names.map((name) => (
        <section key={name} aria-label={name === "" ? t("conversations") : name}>
          {name !== "" && (
            <h3>
              <Icon name="folder" />
              {name}
            </h3>
          )}
          <ul>
            {(folders.get(name) ?? []).map(({ id, title, updatedAt }) => (
              <li key={id}>
                <a
                  href={hrefOf("chat", id)}
                  {...(route.value.page === "chat" && route.value.id === id && { "aria-current": "page" as const })}
                >
                  <span class="title">{title === "" ? t("untitled") : title}</span>
                  <time>{moment(updatedAt)}</time>
                </a>
              </li>
            ))}
          </ul>
        </section>
      ))}
      {conversations.value.length > count && (
        <button type="button" class="button" onClick={() => setCount(count + shownAtFirst)}>
          {t("more")}
        </button>
      )}
    </>
  );
}

function Hits({ hits }: { readonly hits: readonly Hit[] }) {
  if (hits.length === 0) return <p class="quiet">{t("nothingFound")}</p>;
  const titles = new Map(conversations.value.map(({ id, title }) => [id, title]));
  return (
    <ul aria-label={t("found")}>
      {hits.map(({ conversation, message, excerpt }) => (
        <li key={message}>
          <a href={hrefOf("chat", conversation)}>
            <span class="title">{titles.get(conversation) ?? t("untitled")}</span>
            <span class="quiet">{excerpt}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

function Foot({ children }: { readonly children: ComponentChildren }) {
  const chooser = useRef<HTMLInputElement>(null);
  const exportAll = (): void => {
    exportJson(conversations.value.map(({ id }) => id))
      .then((text) => saveAs("troupe-conversations.json", text))
      .catch(notifyError);
  };
  const importFrom = (file: File | undefined): void => {
    if (file === undefined) return;
    importJson(file)
      .then((count) => notify(t("imported", { count })))
      .catch(notifyError);
  };
  return (
    <footer class="side-bar-foot">
      <Button icon="theme" label={t("themeNow", { theme: t(themeKeys[theme.value]) })} onPress={nextTheme} />
      {children}
      <Button icon="key" label={t("apiKey")} onPress={() => (needsKey.value = true)} />
      <Button icon="download" label={t("exportAll")} onPress={exportAll} />
      <Button icon="upload" label={t("importFile")} onPress={() => chooser.current?.click()} />
      <input
        ref={chooser}
        type="file"
        accept="application/json,.json"
        hidden
        onChange={({ currentTarget }) => {
          importFrom(currentTarget.files?.[0]);
          currentTarget.value = "";
        }}
      />
      <select
        aria-label={t("language")}
        value={language.value}
        onChange={({ currentTarget }) => (language.value = currentTarget.value as Language)}
      >
        {Object.entries(languages).map(([code, name]) => (
          <option key={code} value={code}>
            {name}
          </option>
        ))}
      </select>
    </footer>
  );
}

const themeKeys = { system: "themeSystem", light: "themeLight", dark: "themeDark" } as const;
