-- Wireshark dissector for Gloo, the transport of torch.distributed's CPU collectives.
--
--   wireshark -X lua_script:gloo.lua capture.pcap
--
-- Every message begins with 48 bytes: six little-endian 64-bit numbers (docs/gloo-wire-format.md).
-- Messages begin in the middle of segments, and captures are usually cut to headers, so the
-- dissector does not reassemble: it remembers, for each direction of a connection, where the
-- next preamble lies, and decodes it there if those bytes were captured.

local gloo = Proto("gloo", "Gloo collective communication")

local PREAMBLE = 48
local OPCODES = {
  [0] = "SEND_BUFFER",
  [1] = "SEND_UNBOUND_BUFFER",
  [2] = "NOTIFY_SEND_READY",
  [3] = "NOTIFY_RECV_READY",
}
local PREFIXES = {
  [0] = "user", [1] = "gather", [2] = "allgather", [3] = "reduce", [4] = "allreduce",
  [5] = "scatter", [6] = "broadcast", [7] = "barrier", [8] = "alltoall",
}

local fields = {
  nbytes = ProtoField.uint64("gloo.nbytes", "Bytes of the message", base.DEC),
  opcode = ProtoField.uint64("gloo.opcode", "Opcode", base.DEC, OPCODES),
  prefix = ProtoField.uint8("gloo.prefix", "Collective", base.DEC, PREFIXES),
  tag = ProtoField.uint32("gloo.tag", "Tag (number of the collective in its group)", base.DEC),
  delta = ProtoField.uint24("gloo.delta", "Delta", base.DEC),
  offset = ProtoField.uint64("gloo.offset", "Offset", base.DEC),
  length = ProtoField.uint64("gloo.length", "Bytes of data", base.DEC),
  roffset = ProtoField.uint64("gloo.roffset", "Remote offset", base.DEC),
}
gloo.fields = fields

local tcp_stream = Field.new("tcp.stream")
local tcp_seq = Field.new("tcp.seq")
local tcp_srcport = Field.new("tcp.srcport")

-- Filled on the first pass, in which packets come in order: where in a frame preambles begin,
-- and at which sequence number the next one of a direction is expected.
local preambles_of_frame = {}
local expected = {}

function gloo.init()
  preambles_of_frame = {}
  expected = {}
end

-- Numbers up to 2^48 only, far above any buffer; Lua's are doubles in older Wiresharks.
local function number_at(buffer, at)
  if buffer(at + 6, 2):le_uint() ~= 0 then return nil end
  return buffer(at, 4):le_uint() + buffer(at + 4, 2):le_uint() * 4294967296
end

-- Bytes of the message whose preamble lies at `at`, or nil where there is none.
local function message_bytes(buffer, at)
  if at < 0 or buffer:len() < at + PREAMBLE then return nil end
  local nbytes = number_at(buffer, at)
  local opcode = number_at(buffer, at + 8)
  local offset = number_at(buffer, at + 24)
  local length = number_at(buffer, at + 32)
  local roffset = number_at(buffer, at + 40)
  if nbytes == nil or length == nil or offset ~= 0 or roffset ~= 0 then return nil end
  if buffer(at + 23, 1):uint() > 8 then return nil end
  if opcode == 1 and nbytes == PREAMBLE + length then return nbytes end
  if (opcode == 2 or opcode == 3) and nbytes == PREAMBLE then return nbytes end
  return nil
end

local function find_preambles(buffer, pinfo)
  local found = {}
  local direction = tostring(tcp_stream().value) .. "/" .. tostring(tcp_srcport().value)
  local seq = tcp_seq().value
  local start = expected[direction]
  -- A preamble at the very start of a segment is believed where none is expected: behind the
  -- 8 bytes of the hello, or behind one that was not captured.
  local at = 0
  if start ~= nil and start > seq and start - seq < 2147483648 then at = start - seq end
  local reported = buffer:reported_len()
  while at < reported do
    local nbytes = message_bytes(buffer, at)
    if nbytes == nil then break end
    found[#found + 1] = at
    at = at + nbytes
    expected[direction] = seq + at
  end
  return found
end

local function show(buffer, at, tree)
  local prefix = PREFIXES[buffer(at + 23, 1):uint()]
  local tag = buffer(at + 19, 4):le_uint()
  local opcode = OPCODES[buffer(at + 8, 4):le_uint()]
  local length = number_at(buffer, at + 32)
  local text = string.format("%s %u %s %.0f B", prefix, tag, opcode, length)
  local branch = tree:add(gloo, buffer(at, PREAMBLE), "Gloo: " .. text)
  branch:add_le(fields.nbytes, buffer(at, 8))
  branch:add_le(fields.opcode, buffer(at + 8, 8))
  branch:add_le(fields.delta, buffer(at + 16, 3))
  branch:add_le(fields.tag, buffer(at + 19, 4))
  branch:add_le(fields.prefix, buffer(at + 23, 1))
  branch:add_le(fields.offset, buffer(at + 24, 8))
  branch:add_le(fields.length, buffer(at + 32, 8))
  branch:add_le(fields.roffset, buffer(at + 40, 8))
  return text
end

function gloo.dissector(buffer, pinfo, tree)
  if not pinfo.visited then
    preambles_of_frame[pinfo.number] = find_preambles(buffer, pinfo)
  end
  pinfo.cols.protocol = "Gloo"
  local texts = {}
  for _, at in ipairs(preambles_of_frame[pinfo.number] or {}) do
    texts[#texts + 1] = show(buffer, at, tree)
  end
  if #texts > 0 then
    pinfo.cols.info = table.concat(texts, "; ")
  else
    pinfo.cols.info = "Gloo data"
  end
  return buffer:reported_len()
end

gloo:register_heuristic("tcp", function(buffer, pinfo, tree)
  if message_bytes(buffer, 0) == nil then return false end
  pinfo.conversation = gloo
  gloo.dissector(buffer, pinfo, tree)
  return true
end)
