-- Calls for wrk: one thread takes the requests of a folder in turn, each with an id of its own.
--
-- wrk ... -s hosting_wrk.lua URL -- FOLDER COUNT MARK [EXPECTED [IDS]]
--
-- With EXPECTED, every answer is looked at; that costs, so measured runs go without. IDS is how ids are written.

local parts, count, number, ids = {}, 0, 0, "call-%08d"
local threads = {}
failed = 0

function setup(thread)
  table.insert(threads, thread)
end

local function split(text, mark)
  local pieces, from = {}, 1
  while true do
    local first, last = string.find(text, mark, from, true)
    if not first then break end
    table.insert(pieces, string.sub(text, from, first - 1))
    from = last + 1
  end
  table.insert(pieces, string.sub(text, from))
  return pieces
end

function init(args)
  count = tonumber(args[2])
  for index = 1, count do
    local file = assert(io.open(args[1] .. "/" .. index, "rb"))
    parts[index] = split(file:read("*a"), args[3])
    file:close()
  end
  local expected = args[4]
  ids = args[5] or ids
  if expected and expected ~= "" then
    function response(status, headers, body)
      local is_right = status == 200 and string.find(body, expected, 1, true)
      if not is_right or string.find(body, '"error":', 1, true) or string.find(body, '"isError":%s*true') then
        failed = failed + 1
      end
    end
  end
end

function request()
  number = number + 1
  return table.concat(parts[number % count + 1], string.format(ids, number))
end

function done(summary, latency, requests)
  local wrong = 0
  for _, thread in ipairs(threads) do
    wrong = wrong + thread:get("failed")
  end
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write + errors.timeout
  local line = '{"requests":%d,"seconds":%.6f,"p50":%.1f,"p99":%.1f,"refused":%d,"lost":%d,"wrong":%d}\n'
  local seconds, p50, p99 = summary.duration / 1e6, latency:percentile(50), latency:percentile(99)
  io.write(string.format(line, summary.requests, seconds, p50, p99, errors.status, lost, wrong))
end
