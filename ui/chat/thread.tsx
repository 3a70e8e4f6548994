// Thread: the messages of the current branch. Only the last messages are rendered; earlier ones are added when the user scrolls
// up.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../base/button.tsx";
import { t } from "../base/language.ts";
import type { OpenConversation } from "../conversations/open-conversation.ts";
import { MessageView } from "./message-view.tsx";

/** Number of messages rendered at first, and added each time. */
const pageLength = 40;
/** Distance in pixels from the bottom within which the thread scrolls along with new text. */
const followDistance = 80;

export function Thread({ open }: { readonly open: OpenConversation }) {
  const path = open.path.value;
  const [count, setCount] = useState(pageLength);
  const [isAtEnd, setAtEnd] = useState(true);
  const frame = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const heightBefore = useRef(0);
  const first = Math.max(0, path.length - count);

  useEffect(() => {
    const [outer, inner] = [frame.current, content.current];
    if (outer === null || inner === null) return;
    let follows = true;
    const onScroll = (): void => {
      follows = outer.scrollHeight - outer.scrollTop - outer.clientHeight < followDistance;
      setAtEnd(follows);
    };
    const toEnd = (): void => {
      if (follows) outer.scrollTop = outer.scrollHeight;
    };
    const watch = new ResizeObserver(toEnd);
    watch.observe(inner);
    outer.addEventListener("scroll", onScroll, { passive: true });
    toEnd();
    return () => {
      watch.disconnect();
      outer.removeEventListener("scroll", onScroll);
    };
  }, []);

  // Earlier messages are added above. The scroll position is corrected, so that the visible messages do not move.
  useLayoutEffect(() => {
    const outer = frame.current;
    if (outer !== null && heightBefore.current > 0) outer.scrollTop += outer.scrollHeight - heightBefore.current;
    heightBefore.current = 0;
  }, [count]);

  const showEarlier = (): void => {
    heightBefore.current = frame.current?.scrollHeight ?? 0;
    setCount(count + pageLength);
  };
  return (
    <div class="thread" ref={frame} tabIndex={0} role="log" aria-label={t("messages")} aria-busy={open.isRunning.value}>
      <div class="thread-content" ref={content}>
        {path.length === 0 && <p class="welcome">{t("welcome")}</p>}
        {first > 0 && (
          <button type="button" class="button plain earlier" onClick={showEarlier}>
            {t("earlierMessages", { count: first })}
          </button>
        )}
        {path.slice(first).map((message, i) => (
          <MessageView key={message.id} open={open} message={message} isLast={first + i === path.length - 1} />
        ))}
      </div>
      {!isAtEnd && (
        <div class="to-end">
          <Button
            icon="download"
            label={t("toEnd")}
            onPress={() => frame.current?.scrollTo({ top: frame.current.scrollHeight })}
          />
        </div>
      )}
    </div>
  );
}
