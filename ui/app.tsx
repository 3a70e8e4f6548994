// Frame of the page: the side bar with the conversations and the links, and the selected page.
import type { ComponentType } from "preact";
import { lazy, Suspense } from "preact/compat";
import { useEffect } from "preact/hooks";
import { Button } from "./base/button.tsx";
import { t } from "./base/language.ts";
import { Notices } from "./base/notice.tsx";
import { route } from "./base/route.ts";
import { ChatPage } from "./chat/chat-page.tsx";
import { isOpen, SideBar } from "./chat/side-bar.tsx";
import { readLibrary } from "./conversations/library.ts";
import { isReachable, needsKey } from "./server/client.ts";
import { KeyDialog } from "./server/key-dialog.tsx";
import { readModels } from "./server/models.ts";
import { Shortcuts, ShortcutsButton } from "./shortcuts.tsx";

/** Pages other than the chat. Each is loaded when it is opened. */
const pages: Readonly<Record<string, ComponentType>> = {
  models: loaded(async () => (await import("./pages/models.tsx")).ModelsPage),
  activity: loaded(async () => (await import("./pages/activity.tsx")).ActivityPage),
  local: loaded(async () => (await import("./pages/local/local.tsx")).LocalPage),
  storage: loaded(async () => (await import("./pages/storage.tsx")).StoragePage),
  system: loaded(async () => (await import("./pages/system.tsx")).SystemPage),
};

/** Creates a page component that is loaded on first use. Shows an error page if it cannot be loaded. */
function loaded(load: () => Promise<ComponentType>): ComponentType {
  return lazy(() => load().catch(() => NotLoaded));
}

function NotLoaded() {
  return (
    <div class="page">
      <p>{t("pageNotLoaded")}</p>
      <button type="button" class="button main" onClick={() => location.reload()}>
        {t("reload")}
      </button>
    </div>
  );
}

export function App() {
  useEffect(() => {
    void readLibrary();
    void readModels();
  }, []);
  const Page = pages[route.value.page];
  return (
    <div class={isOpen.value ? "frame with-side-bar" : "frame"}>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        {t("skipToContent")}
      </button>
      <SideBar foot={<ShortcutsButton />} />
      <main id="main" tabIndex={-1}>
        {!isOpen.value && (
          <div class="open-side-bar">
            <Button icon="menu" label={t("openSideBar")} onPress={() => (isOpen.value = true)} />
          </div>
        )}
        {!isReachable.value && (
          <p class="unreachable" role="alert">
            {t("unreachable")}
          </p>
        )}
        {Page === undefined ? (
          <ChatPage />
        ) : (
          <Suspense fallback={<p class="loading">{t("loading")}</p>}>
            <Page />
          </Suspense>
        )}
      </main>
      <Shortcuts />
      <Notices />
      {needsKey.value && <KeyDialog />}
    </div>
  );
}
