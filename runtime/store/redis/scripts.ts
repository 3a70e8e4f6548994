// Lua scripts of the Redis store. Redis runs each script atomically. All keys begin with the prefix in KEYS[1], whose hash tag puts
// them into one slot. Times come from the clock of the Redis server, so that all replicas use the same clock.
//
//   m          hash: entry key -> JSON {v: version, b: born, x: expiry or false, s: share, n: bytes, i: ids of its parts}
//   e:KEY      head and parts of an entry (msgpack); expires with the entry
//   p:ID       bytes of a part; expires with its entry
//   lex, ages, exp, s:SHARE   sorted sets of entry keys: by key, by time of addition, by expiry, by time of addition in a share
//   me, mb     sorted sets of shares, by entries and by bytes
//   n, ver     bytes of all entries; number of the last change
import { createHash } from "node:crypto";

export interface Script {
  readonly source: string;
  readonly sha: string;
}

function script(source: string): Script {
  return { source, sha: createHash("sha1").update(source).digest("hex") };
}

/**
 * GRACE: milliseconds from the expiry of an entry (from then on it is hidden) to its removal. MOST_REMOVED: maximum number of
 * entries that one script evicts. MOST_COMPARED: maximum number of equally large shares that are compared to evict an entry.
 */
const common = `
local P = KEYS[1]
local GRACE = 60000
local MOST_REMOVED = 32
local MOST_COMPARED = 32

local function clock(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function whole(number) return string.format('%.0f', number) end

local function find(key)
  local found = redis.call('HGET', P .. 'm', key)
  return found and cjson.decode(found) or nil, found
end

local function is_stale(m, at, max_age)
  return m.b < at - max_age or (m.x and m.x <= at)
end
`;

const changing = `
local function changed(key)
  if redis.call('EXISTS', P .. 'ver') == 0 then
    local t = redis.call('TIME')
    redis.call('SET', P .. 'ver', t[1] .. string.format('%06d', t[2]))
  end
  redis.call('PUBLISH', P .. 'changes', key)
  return whole(redis.call('INCR', P .. 'ver'))
end

local function count(share, entries, bytes)
  local left = redis.call('ZINCRBY', P .. 'me', entries, share)
  redis.call('ZINCRBY', P .. 'mb', bytes, share)
  redis.call('INCRBY', P .. 'n', whole(bytes))
  if tonumber(left) <= 0 then
    redis.call('ZREM', P .. 'me', share)
    redis.call('ZREM', P .. 'mb', share)
  end
end

local function remove(key, m, kept, part_grace)
  for _, set in ipairs({'lex', 'ages', 'exp', 's:' .. m.s}) do redis.call('ZREM', P .. set, key) end
  redis.call('HDEL', P .. 'm', key)
  redis.call('UNLINK', P .. 'e:' .. key)
  count(m.s, -1, -m.n)
  for _, id in ipairs(m.i) do
    if kept[id] then
    elseif part_grace > 0 then redis.call('PEXPIRE', P .. 'p:' .. id, part_grace)
    else redis.call('UNLINK', P .. 'p:' .. id) end
  end
end

-- Returns the oldest entry of the largest shares. Evictions make shares equal, so there may be as many largest shares as clients:
-- if there are more than MOST_COMPARED, returns the oldest entry of MOST_COMPARED of them, which the time selects.
local function largest(rank, spared)
  local top = redis.call('ZREVRANGE', P .. rank, 0, 1, 'WITHSCORES')
  for i = 2, #top, 2 do
    local equal = redis.call('ZCOUNT', P .. rank, top[i], top[i])
    local compared = math.min(equal, MOST_COMPARED)
    local from = i / 2 - 1 + redis.call('TIME')[2] % (equal - compared + 1)
    local best, born
    for _, share in ipairs(redis.call('ZREVRANGE', P .. rank, from, from + compared - 1)) do
      local rows = redis.call('ZRANGE', P .. 's:' .. share, 0, 1, 'WITHSCORES')
      local at = rows[1] == spared and 3 or 1
      if rows[at] and (not best or tonumber(rows[at + 1]) < born) then best, born = rows[at], tonumber(rows[at + 1]) end
    end
    if best then return best end
  end
end

local function next_to_go(spared, now, max_age, max_entries, max_bytes)
  local entries = redis.call('ZCARD', P .. 'lex')
  local is_over = entries > max_entries or tonumber(redis.call('GET', P .. 'n') or 0) > max_bytes
  local at = is_over and now or now - GRACE
  for set, limit in pairs({ages = at - max_age, exp = at}) do
    local row = redis.call('ZRANGE', P .. set, 0, 0, 'WITHSCORES')
    if row[1] and row[1] ~= spared then
      local score = tonumber(row[2])
      if score < limit or (set == 'exp' and score == limit) then return row[1] end
    end
  end
  if is_over then return largest(entries > max_entries and 'me' or 'mb', spared) end
end

local function evict(spared, now, max_age, max_entries, max_bytes, part_grace)
  for _ = 1, MOST_REMOVED do
    local key = next_to_go(spared, now, max_age, max_entries, max_bytes)
    if not key then return 0 end
    remove(key, find(key), {}, part_grace)
    changed(key)
  end
  return 1
end
`;

/** ARGV: key, time, maximum age. Returns [metadata, content], or null. */
export const getScript = script(`${common}
local m, text = find(ARGV[1])
if not m or is_stale(m, clock(ARGV[2]), tonumber(ARGV[3])) then return false end
local content = redis.call('GET', P .. 'e:' .. ARGV[1])
return content and {text, content} or false
`);

/**
 * ARGV: prefix, cursor, limit, time, maximum age. Returns [cursor or "", then key, metadata, content of each entry].
 */
export const listScript = script(`${common}
local prefix, cursor, limit, now, max_age = ARGV[1], ARGV[2], tonumber(ARGV[3]), clock(ARGV[4]), tonumber(ARGV[5])
local from = cursor ~= '' and '(' .. cursor or prefix ~= '' and '[' .. prefix or '-'
local keys = redis.call('ZRANGEBYLEX', P .. 'lex', from, '+', 'LIMIT', 0, limit + 1)
local page, count = {''}, 0
for _, key in ipairs(keys) do
  if string.sub(key, 1, #prefix) ~= prefix then break end
  count = count + 1
  if count > limit then
    page[1] = keys[limit]
    break
  end
  local m, text = find(key)
  local content = not is_stale(m, now, max_age) and redis.call('GET', P .. 'e:' .. key)
  if content then
    table.insert(page, key)
    table.insert(page, text)
    table.insert(page, content)
  end
end
return page
`);

/**
 * ARGV: time of addition and key of the last entry of the page before (or ""), limit, time, maximum age. Returns the key, time
 * of addition, metadata and content of each entry; metadata and content are "" for an entry that is hidden.
 */
export const newestScript = script(`${common}
local born, key, limit, now, max_age = ARGV[1], ARGV[2], tonumber(ARGV[3]), clock(ARGV[4]), tonumber(ARGV[5])
local places, from = {}, '+inf'
if born ~= '' then
  for _, other in ipairs(redis.call('ZREVRANGEBYSCORE', P .. 'ages', born, born)) do
    if other < key and #places < limit then table.insert(places, {other, born}) end
  end
  from = '(' .. born
end
local rows = redis.call('ZREVRANGEBYSCORE', P .. 'ages', from, '-inf', 'WITHSCORES', 'LIMIT', 0, limit - #places)
for i = 1, #rows, 2 do table.insert(places, {rows[i], rows[i + 1]}) end
local page = {}
for _, place in ipairs(places) do
  local m, text = find(place[1])
  local content = not is_stale(m, now, max_age) and redis.call('GET', P .. 'e:' .. place[1])
  table.insert(page, place[1])
  table.insert(page, place[2])
  table.insert(page, content and text or '')
  table.insert(page, content or '')
end
return page
`);

/**
 * ARGV: operation (put, set or delete), key, time, expected version ("any"; "" for none), maximum age, maximum entries, maximum
 * bytes, time in ms for which replaced parts stay readable, then for put and set: content, share, expiry or "", bytes, number
 * of parts to write and the id and bytes of each, number of parts written ahead and the id and length of each, ids of reused
 * parts. Returns [1 if done, 1 if more must be evicted].
 */
export const writeScript = script(`${common}${changing}
local op, key, now, expected, max_age = ARGV[1], ARGV[2], clock(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local max_entries, max_bytes, part_grace = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local old = find(key)
local is_fresh = old and not is_stale(old, now, max_age) and redis.call('EXISTS', P .. 'e:' .. key) == 1
if op == 'delete' and expected == 'any' and not is_fresh then return {0, 0} end
if expected ~= 'any' and (is_fresh and old.v or '') ~= expected then return {0, 0} end
if op == 'delete' then
  if old then
    remove(key, old, {}, part_grace)
    changed(key)
  end
  return {1, 0}
end

local share, expiry = ARGV[10], ARGV[11] ~= '' and tonumber(ARGV[11])
local born = op == 'set' and is_fresh and old.b or now
local life = born + max_age
if expiry and expiry < life then life = expiry end
local ttl = whole(math.max(life - now, 0) + GRACE)
local ids, kept, at = {}, {}, 13
local written = tonumber(ARGV[at])
for i = 1, written do
  local id = ARGV[at + 2 * i - 1]
  if not redis.call('SET', P .. 'p:' .. id, ARGV[at + 2 * i], 'NX', 'PX', ttl) then
    return redis.error_reply('PARTLATE the id of a part is taken')
  end
  table.insert(ids, id)
end
at = at + 2 * written + 1
local ahead = tonumber(ARGV[at])
for i = 1, ahead do
  local id = ARGV[at + 2 * i - 1]
  if redis.call('STRLEN', P .. 'p:' .. id) ~= tonumber(ARGV[at + 2 * i]) then
    return redis.error_reply('PARTLATE a part was removed before its entry was written')
  end
  table.insert(ids, id)
end
at = at + 2 * ahead + 1
local owned = {}
for _, id in ipairs(old and old.i or {}) do owned[id] = true end
for i = at, #ARGV do
  if not owned[ARGV[i]] then return redis.error_reply('PARTOTHER a part of another entry') end
  kept[ARGV[i]] = true
  table.insert(ids, ARGV[i])
end
for i, id in ipairs(ids) do if i > written then redis.call('PEXPIRE', P .. 'p:' .. id, ttl) end end

if old then remove(key, old, kept, part_grace) end
local bytes = tonumber(ARGV[12])
local m = {v = changed(key), b = born, x = expiry, s = share, n = bytes, i = ids}
redis.call('HSET', P .. 'm', key, cjson.encode(m))
redis.call('SET', P .. 'e:' .. key, ARGV[9], 'PX', ttl)
redis.call('ZADD', P .. 'lex', 0, key)
redis.call('ZADD', P .. 'ages', born, key)
redis.call('ZADD', P .. 's:' .. share, born, key)
if expiry then redis.call('ZADD', P .. 'exp', expiry, key) end
count(share, 1, bytes)
return {1, evict(key, now, max_age, max_entries, max_bytes, part_grace)}
`);

/**
 * ARGV: time, maximum age, maximum entries, maximum bytes, time in ms for which removed parts stay readable. Returns 1 if
 * further entries must be evicted.
 */
export const evictScript = script(`${common}${changing}
return evict(nil, clock(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
`);

/**
 * Adds events to a stream (KEYS[1]) and notifies its readers. ARGV: number of the last event plus 1, 1 at the end of the stream
 * (else 0), number of the first event, text of the events, id from which entries are kept, time in ms after which the stream
 * expires.
 */
export const appendScript = script(`
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local at, mark = tonumber(ARGV[1]), tonumber(ARGV[2])
local last_at, last_mark = 0, 0
if last then last_at, last_mark = string.match(last[1], '(%d+)-(%d+)') end
last_at, last_mark = tonumber(last_at), tonumber(last_mark)
if at < last_at or (at == last_at and mark <= last_mark) then return 0 end
redis.call('XADD', KEYS[1], ARGV[1] .. '-' .. ARGV[2], 'first', ARGV[3], 'text', ARGV[4])
redis.call('XTRIM', KEYS[1], 'MINID', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PUBLISH', KEYS[1], '')
return 1
`);

export const storeScripts = [getScript, listScript, newestScript, writeScript, evictScript, appendScript];
