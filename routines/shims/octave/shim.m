% Runs the routines of a package for a host: reads frames from one pipe and answers on another.
%
% A frame is `u32 length, u32 JSON length, JSON, bytes`, little endian. Each call is answered once, by a `result` or an
% `error`. Standard output and standard error are the log, so routines may print. Octave 7 or later, no dependencies.
%
% In other programs, `source("shim.m")` defines `routines_connect`, a client of a gateway, which uses the program curl.
%
% JSON is read here, since `jsondecode` does not distinguish [1] from 1 and rounds some numbers differently. Octave cannot map
% the page of a search, or of a function with checkpoints: the shim reads its first byte once a millisecond.
1;

function shim_invalid(varargin)
  error("routines:invalid", varargin{:});
end

function shim_die(varargin)
  fprintf(stderr, [varargin{1} "\n"], varargin{2:end});
  exit(1);
end

% Returns text as a string in JSON.
function json = shim_quoted(text)
  bytes = uint8(text);
  if any(bytes > 127) && !isequal(unicode2native(native2unicode(bytes(:)', "UTF-8"), "UTF-8"), bytes(:)')
    shim_invalid("a string in the result is no text in UTF-8");
  end
  json = text(:)';
  if any(bytes < 32 | bytes == 34 | bytes == 92)
    json = strrep(strrep(json, "\\", "\\\\"), "\"", "\\\"");
    for code = unique(bytes(bytes < 32))(:)'
      json = strrep(json, char(code), sprintf("\\u%04x", code));
    end
  end
  json = ["\"" json "\""];
end

% Returns doubles as JSON, in the shortest form that is exact or with 17 digits.
function texts = shim_numbers(values)
  values = values(:)';
  texts = strsplit(sprintf("%.15g\n", values)(1:end-1), "\n");
  wrong = find(isfinite(values) & str2double(texts) != values);
  for at = wrong
    texts{at} = sprintf("%.17g", values(at));
  end
  % With a point it is no integer.
  for at = find(isfinite(values) & abs(values) > 2^53)
    if !any(texts{at} == "." | texts{at} == "e")
      texts{at} = [texts{at} ".0"];
    end
  end
  texts(values == 0 & 1 ./ values < 0) = {"-0.0"};
  texts(isnan(values)) = {"{\"$f\":\"nan\"}"};
  texts(values == Inf) = {"{\"$f\":\"inf\"}"};
  texts(values == -Inf) = {"{\"$f\":\"-inf\"}"};
end

% Returns a result as JSON that every language reads alike.
function json = shim_encode(value, depth = 0)
  if ischar(value) && (isempty(value) || isrow(value))
    json = shim_quoted(value);
  elseif iscell(value) || (isstruct(value) && !isscalar(value))
    json = shim_encode_list(value, depth);
  elseif isstruct(value)
    json = shim_encode_struct(value, depth);
  elseif isnumeric(value) && isempty(value) && isa(value, "double") && all(size(value) == 0)
    json = "null";
  elseif islogical(value) && isscalar(value)
    json = shim_truth(value);
  elseif (isa(value, "int64") || isa(value, "uint64")) && isscalar(value) && abs(double(value)) >= 2^53
    % `sprintf` rounds large ones.
    json = sprintf("{\"$i\":\"%s\"}", strtrim(disp(value)));
  elseif isnumeric(value) && isreal(value) && isscalar(value)
    json = shim_numbers(double(value)){1};
  elseif islogical(value)
    json = shim_encode_list(num2cell(value), depth);
  elseif isnumeric(value) && isreal(value)
    shape = size(value);
    if isvector(value) || (ndims(value) == 2 && isempty(value))
      shape = numel(value);
    end
    json = shim_encode_array(full(value), shape);
  else
    shim_invalid("a %s is no result: return [], a logical, number, text, cell, struct or array of real numbers", class(value));
  end
end

function text = shim_truth(value)
  text = {"false", "true"}{value + 1};
end

function json = shim_encode_list(list, depth)
  if depth >= 100
    shim_invalid("the result is nested more than 100 deep");
  end
  if isstruct(list)
    list = num2cell(list);
  end
  if !isempty(list) && all(cellfun(@(one) isa(one, "double") && isreal(one) && isscalar(one), list(:)))
    parts = shim_numbers([list{:}]);
  else
    parts = cellfun(@(one) shim_encode(one, depth + 1), list(:)', "UniformOutput", false);
  end
  json = ["[" strjoin(parts, ",") "]"];
end

function json = shim_encode_struct(value, depth)
  if isfield(value, "shape") && isa(value.shape, "uint32") && isfield(value, "numbers")
    json = shim_encode_array(value.numbers, double(value.shape));
    return;
  end
  if isfield(value, "resource") && isa(value.resource, "uint8")
    json = sprintf("{\"$resource\":%s}", shim_quoted(char(value.resource)));
    return;
  end
  if isfield(value, "integer") && isa(value.integer, "uint8")
    json = sprintf("{\"$i\":\"%s\"}", char(value.integer));
    return;
  end
  if depth >= 100
    shim_invalid("the result is nested more than 100 deep");
  end
  names = fieldnames(value)';
  if numel(names) == 1 && strncmp(names{1}, "$", 1)
    shim_invalid("a struct with one field that starts with $ in the result is reserved");
  end
  parts = cellfun(@(name) [shim_quoted(name) ":" shim_encode(value.(name), depth + 1)], names, "UniformOutput", false);
  json = ["{" strjoin(parts, ",") "}"];
end

function json = shim_encode_array(numbers, shape)
  types = {"double", "f64"; "single", "f32"; "int8", "i8"; "int16", "i16"; "int32", "i32"; "int64", "i64"; ...
           "uint8", "u8"; "uint16", "u16"; "uint32", "u32"; "uint64", "u64"};
  type = types{strcmp(types(:, 1), class(numbers)), 2};
  if prod(shape) != numel(numbers)
    shim_invalid("%d numbers have not the shape [%s]", numel(numbers), num2str(shape));
  end
  % Row by row.
  rows = permute(numbers, ndims(numbers):-1:1)(:)';
  data = "";
  if !isempty(rows)
    data = base64_encode(typecast(rows, "uint8"));
  end
  data(data == "\n") = [];
  shape = strjoin(arrayfun(@(one) sprintf("%d", one), shape, "UniformOutput", false), ",");
  json = sprintf("{\"$a\":{\"dtype\":\"%s\",\"shape\":[%s],\"data\":\"%s\"}}", type, shape, data);
end

% Returns the fields `numbers`, and `shape` as uint32, by which this struct differs from those of arguments.
function array = shim_decode_array(value)
  names = {"f64", "f32", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
  types = {"double", "single", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"};
  sizes = [8 4 1 2 4 8 1 2 4 8];
  wrong = "the argument is invalid: an array is wrong: its type, shape and data do not match";
  is_length = @(one) isa(one, "double") && isscalar(one) && one >= 0 && one == fix(one);
  if !all(isfield(value, {"dtype", "shape", "data"})) || !ischar(value.data) || !iscell(value.shape) || !all(cellfun(is_length, value.shape))
    shim_invalid(wrong);
  end
  at = find(strcmp(names, value.dtype));
  shape = [value.shape{:}];
  data = zeros(1, 0, "uint8");
  if !isempty(value.data)
    if mod(numel(value.data), 4) || isempty(regexp(value.data, "^[A-Za-z0-9+/]+=?=?$"))
      shim_invalid(wrong);
    end
    data = uint8(matlab.net.base64decode(value.data));
  end
  if isempty(at) || prod(shape) * sizes(at) != numel(data)
    shim_invalid(wrong);
  end
  numbers = typecast(data, types{at});
  if numel(shape) > 1
    numbers = permute(reshape(numbers, fliplr(shape)), numel(shape):-1:1);
  else
    numbers = numbers(:);
  end
  array = struct("numbers", numbers, "shape", uint32(shape));
end

% Returns the value of a text in JSON: lists are cells with one row, null is [].
function value = shim_decode(text)
  [tokens, starts] = regexp(text, '"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}:,]|[^][{}:,\s"]+', "match", "start");
  heads = text(starts);
  numbers = NaN(1, numel(tokens));
  is_number = heads == "-" | (heads >= "0" & heads <= "9");
  numbers(is_number) = str2double(tokens(is_number));
  if any(isnan(numbers(is_number))) || isempty(tokens)
    error("the host has sent no JSON");
  end
  brackets = [find(heads == "[" | heads == "]" | heads == "{"), Inf];
  [value, at] = shim_value(tokens, heads, numbers, brackets, 1);
  if at <= numel(tokens)
    error("the host has sent no JSON");
  end
end

function [value, at] = shim_value(tokens, heads, numbers, brackets, at)
  switch heads(at)
    case "["
      % A list of numbers, without recursion.
      last = brackets(lookup(brackets, at) + 1);
      inner = numbers(at + 1:2:last - 1);
      if heads(last) == "]" && !isempty(inner) && !any(isnan(inner))
        value = num2cell(inner);
        at = last + 1;
        return;
      end
      value = cell(1, 0);
      at += 1;
      while heads(at) != "]"
        [value{1, end + 1}, at] = shim_value(tokens, heads, numbers, brackets, at);
        at += heads(at) == ",";
      end
      at += 1;
    case "{"
      value = struct();
      at += 1;
      while heads(at) != "}"
        key = shim_text(tokens{at});
        [value.(key), at] = shim_value(tokens, heads, numbers, brackets, at + 2);
        at += heads(at) == ",";
      end
      at += 1;
      value = shim_special(value);
    case "\""
      value = shim_text(tokens{at});
      at += 1;
    otherwise
      if !isnan(numbers(at))
        value = numbers(at);
      else
        value = struct("true", {true}, "false", {false}, "null", {[]}).(tokens{at});
      end
      at += 1;
  end
end

% Returns a struct, or the value for which it stands.
function value = shim_special(value)
  names = fieldnames(value);
  if numel(names) != 1 || !strncmp(names{1}, "$", 1)
    return;
  end
  special = value.(names{1});
  switch names{1}
    case "$file"
      value = special;
    case "$i"
      if isempty(regexp(special, '^-?\d+$'))
        shim_invalid("the argument is invalid: it has no integer");
      end
      value = str2double(special);
      if abs(value) >= 2^53
        value = struct("integer", uint8(special));
      end
    case "$f"
      value = str2double(strrep(special, "inf", "Inf"));
    case "$a"
      value = shim_decode_array(special);
  end
end

function text = shim_text(token)
  text = token(2:end - 1);
  if !any(text == "\\")
    return;
  end
  [from, to] = regexp(text, '(?:\\u[0-9a-fA-F]{4})+|\\[^u]', "start", "end");
  parts = cell(1, 2 * numel(from) + 1);
  last = 0;
  for at = 1:numel(from)
    parts{2 * at - 1} = text(last + 1:from(at) - 1);
    escape = text(from(at):to(at));
    if escape(2) == "u"
      codes = uint16(hex2dec(reshape(escape, 6, [])'(:, 3:6)));
      parts{2 * at} = native2unicode(typecast(codes(:)', "uint8"), "UTF-16LE");
    else
      parts{2 * at} = "\"\\/\b\f\n\r\t"("\"\\/bfnrt" == escape(2));
    end
    last = to(at);
  end
  parts{end} = text(last + 1:end);
  text = [parts{:}];
end

% The frames from and to the host, in one global struct.
function bytes = shim_take(size)
  global shim;
  bytes = fread(shim.input, [1, size], "uint8=>uint8");
  if numel(bytes) < size
    exit(0);
  end
end

function message = shim_receive()
  global shim;
  lengths = double(typecast(shim_take(8), "uint32"));
  if lengths(1) < 4 || lengths(1) > 64 * 2^20 || lengths(2) > lengths(1) - 4
    shim_die("the host has sent a frame of %d bytes with JSON of %d bytes", lengths);
  end
  content = shim_take(lengths(1) - 4);
  shim.bytes = content(lengths(2) + 1:end);
  text = char(content(1:lengths(2)));
  shim.invalid = "";
  try
    message = shim_decode(text);
  catch failure
    if !strcmp(failure.identifier, "routines:invalid")
      shim_die("%s", failure.message);
    end
    % The calls fail with this message.
    shim.invalid = failure.message;
    message = shim_decode(strrep(text, "\"$", "\""));
  end
end

function shim_send(json, data = zeros(1, 0, "uint8"))
  global shim;
  lengths = typecast(uint32([numel(json) + numel(data) + 4, numel(json)]), "uint8");
  fwrite(shim.output, [lengths, uint8(json), data], "uint8");
  fflush(shim.output);
end

% Sends the results that were collected.
function shim_flush()
  global shim;
  if !isempty(shim.results)
    shim_send(["{\"type\":\"result\",\"values\":[" strjoin(shim.results, ",") "]}"]);
  end
  shim.results = {};
  shim.size = 0;
  shim.sent = time();
end

function shim_answer(id, json)
  global shim;
  if numel(json) > 64 * 2^20 - 1024
    shim_invalid("the result has %d bytes, more than %d", numel(json), 64 * 2^20 - 1024);
  end
  if shim.size + numel(json) > 2^20
    shim_flush();
  end
  shim.results{end + 1} = sprintf("[%d,%s]", id, json);
  shim.size += numel(json);
  if time() - shim.sent > 0.01
    shim_flush();
  end
end

% Reports the failure of a call with an id, of a search, or of the load.
function shim_fail(failure, id = "")
  shim_flush();
  [kind, message, trace] = deal("user", failure.message(1:min(end, 4096)), failure.message);
  if strcmp(failure.identifier, "routines:invalid")
    [kind, trace] = deal("invalid", "");
  else
    % A syntax error names its place in another form.
    trace = regexprep(trace, 'near line (\d+) of file (\S+)', 'at $2:$1');
    for frame = failure.stack'
      [~, name, ending] = fileparts(frame.file);
      if !any(strfind(frame.name, "shim_")) && !strcmp([name ending], "shim.m")
        trace = sprintf("%s\n at %s (%s%s:%d)", trace, frame.name, name, ending, frame.line);
      end
    end
  end
  if any(strfind([message trace], "ermission denied")) && !isempty(getenv("ROUTINES_ISOLATED"))
    message = [message ": routines are isolated: --read, --write and --network grant files and ports"];
  end
  if !isempty(id)
    id = sprintf("\"id\":%d,", id);
  end
  clean = @(text) shim_quoted(native2unicode(uint8(text(1:min(end, 16384))), "UTF-8"));
  shim_send(sprintf("{\"type\":\"error\",%s\"kind\":\"%s\",\"message\":%s,\"trace\":%s}", id, kind, clean(message), clean(trace)));
end

% Makes a call: a cell has positional arguments, a struct named ones, another value is the only one.
function value = shim_apply(routine, names, argument)
  if isstruct(argument) && !isa(shim_field(argument, "shape"), "uint32") && !isa(shim_field(argument, "integer"), "uint8")
    list = {};
    for name = fieldnames(argument)'
      at = find(strcmp(names, name{1}));
      if isempty(at)
        error("the routine has no parameter \"%s\"", name{1});
      end
      list(1, end + 1:at - 1) = {[]};
      list{1, at} = argument.(name{1});
    end
    missing = find(!isfield(argument, names(1:numel(list))), 1);
    if !isempty(missing)
      error("the argument %s is missing", names{missing});
    end
    argument = list;
  elseif !iscell(argument)
    argument = {argument};
  end
  if nargout(routine) == 0
    feval(routine, argument{:});
    value = [];
  else
    value = feval(routine, argument{:});
  end
end

function value = shim_field(container, name)
  value = [];
  if isfield(container, name)
    value = container.(name);
  end
end

% Returns the page: the request in its first byte, and the bound.
function read = shim_look()
  global shim;
  do
    file = fopen(shim.page, "r");
    read = fread(file, [1, 24], "uint8=>uint8");
    fclose(file);
  until isequal(read(9:16), read(17:24))
end

% Returns the request. It reads the page once a millisecond.
function is = shim_asked(is_new = false)
  global shim;
  if is_new || time() - shim.looked >= 0.001
    file = fopen(shim.page, "r");
    shim.request = fread(file, 1);
    fclose(file);
    shim.looked = time();
  end
  is = shim.request != 0;
end

function request = shim_request()
  global shim;
  shim_asked(true);
  request = shim.request;
end

function shim_clear()
  global shim;
  file = fopen(shim.page, "r+");
  fwrite(file, 0, "uint8");
  fclose(file);
  shim.request = 0;
end

function bytes = shim_serialized(value, name)
  global shim;
  save("-binary", shim.state, "value");
  file = fopen(shim.state, "r");
  bytes = fread(file, [1, Inf], "uint8=>uint8");
  fclose(file);
  if numel(bytes) > 2^20
    shim_invalid("%s has %d bytes, more than %d: keep large data in files", name, numel(bytes), 2^20);
  end
end

function value = shim_deserialized(bytes)
  global shim;
  file = fopen(shim.state, "w");
  fwrite(file, bytes, "uint8");
  fclose(file);
  value = load("-binary", shim.state).value;
end

% The job of a running search.
function bound = shim_bound()
  global shim;
  bound = shim.bound;
end

function shim_count(name, number = 1)
  global shim;
  if isfield(shim.counts, name)
    number += shim.counts.(name);
  end
  shim.counts.(name) = number;
end

% Offers a solution. Returns whether its cost is less than that of the best known one.
function is_best = shim_offer(cost, solution)
  global shim;
  if !isfinite(cost)
    error("the cost of a solution is %g, which is not finite", cost);
  end
  is_best = cost < shim.bound;
  if is_best
    json = shim_encode(solution);
    if numel(json) > 64 * 2^10
      error("the solution has more than %d bytes as JSON", 64 * 2^10);
    end
    shim_send(sprintf("{\"type\":\"offer\",\"cost\":%s,\"solution\":%s}", shim_numbers(double(cost)){1}, json));
    shim.bound = double(cost);
  end
end

% Sends a message with the new numbers.
function shim_send_counts(head, data = zeros(1, 0, "uint8"))
  global shim;
  names = fieldnames(shim.counts)';
  if numel(names) > 1000
    shim_invalid("cx.count has more than 1000 names");
  end
  pairs = cell(size(names));
  for at = 1:numel(names)
    number = shim.counts.(names{at});
    if number != fix(number) || abs(number) > 2^53
      shim_invalid("cx.count of %s is no integer up to 2^53: add less at a time", names{at});
    end
    pairs{at} = sprintf("%s:%d", shim_quoted(names{at}), number);
  end
  shim_send(sprintf("{\"type\":%s,\"counts\":{%s}}", head, strjoin(pairs, ",")), data);
  shim.counts = struct();
end

% Searches until all is done, or the host has sent another message than `go`, which is returned.
function message = shim_search(search, self)
  global shim;
  cx = struct("asked", @shim_asked, "bound", @shim_bound, "count", @shim_count, "offer", @shim_offer);
  message = [];
  since = time();
  while true
    shim.bound = min(shim.bound, typecast(shim_look()(9:16), "double"));
    shim.looked = 0;
    self = search.search(self, cx);
    asked = shim_request();
    if asked == 0
      shim_send_counts("\"result\"");
      return;
    end
    if asked == 1 || (asked == 2 && time() - since < 0.001)
      % Before the bound is read. The host repeats a request that is cleared here.
      shim_clear();
      continue;
    end
    part = [];
    if asked == 2
      [self, part] = search.split(self);
    end
    rest = shim_serialized(self, "the state of the search");
    if isempty(part)
      shim_send_counts("\"paused\"", rest);
    else
      part = shim_serialized(part, "the state of the search");
      shim_send_counts(sprintf("\"child\",\"part\":%d", numel(part)), [part rest]);
    end
    message = shim_receive();
    if !strcmp(message.type, "go")
      return;
    end
    message = [];
    since = time();
  end
end

% Runs a search from its state or its argument. Returns the message that has replaced it, if there is one.
function message = shim_start_search(argument)
  global shim;
  message = [];
  shim.bound = Inf;
  shim.counts = struct();
  try
    if isempty(shim.bytes)
      if !isempty(shim.invalid)
        shim_invalid("%s", shim.invalid);
      end
      self = shim_apply(shim.routine.start, shim.names, argument);
    else
      self = shim_deserialized(shim.bytes);
    end
    message = shim_search(shim.routine, self);
  catch failure
    shim_fail(failure);
  end
end

% Calls another routine from a running one, and returns its result.
function value = routines_call(routine, varargin)
  shim_running("routines_call");
  shim_flush();
  shim_send(sprintf("{\"type\":\"call\",\"routine\":%s,\"argument\":%s}", shim_quoted(routine), shim_encode(varargin)));
  answer = shim_receive();
  if isfield(answer, "error")
    error(struct("identifier", ["routines:call:" answer.error.kind], "message", answer.error.message));
  end
  value = answer.value;
end

% Offers a state from which the running call can continue, in case it is interrupted here or later.
function routines_checkpoint(state)
  global shim;
  shim_running("routines_checkpoint");
  if !shim.stopped
    if shim.has_states && !shim_asked()
      return;
    end
    shim.has_states = true;
    shim_flush();
    bytes = shim_serialized(state, "the state of the call");
    shim.stopped = shim_request() == 3;
    if !shim.stopped
      % Before the state is sent. The host repeats a request that is cleared here.
      shim_clear();
    end
    shim_send(sprintf("{\"type\":\"checkpoint\",\"id\":%d}", shim.running), bytes);
  end
  if shim.stopped
    error("routines:stopped", "the call continues elsewhere");
  end
end

% Returns the state from which the running call continues, or the default if it starts.
function state = routines_restored(state)
  global shim;
  shim_running("routines_restored");
  if !isempty(shim.restored)
    state = shim_deserialized(shim.restored);
  end
end

function shim_running(name)
  global shim;
  if isempty(shim.running)
    error("%s works in a running routine that is a function", name);
  end
end

% Returns the names of the parameters of a function in the text of its module, without their defaults.
function names = shim_parameters(text, name)
  found = regexp(text, ['^\s*function\s+(?:[^=(\n]*=\s*)?' name '\s*\(([^\n]*?)\)\s*(?:[%#;][^\n]*)?$'], "tokens", "once", "lineanchors");
  names = {};
  if !isempty(found)
    names = regexprep(strtrim(strsplit(found{1}, ",")), '\s*=.*', "");
  end
end

function shim_load(message)
  global shim;
  [module, name] = strsplit(message.entry, ":"){:};
  file = fullfile(message.folder, [strrep(module, ".", "/") ".m"]);
  if !exist(file, "file")
    error("the package has no module %s: no file %s", module, file);
  end
  addpath(fileparts(file));
  text = fileread(file);
  % A file that begins with a function has only that one.
  if isempty(regexp(text, '^(\s*[%#][^\n]*\n|\s*\n)*\s*function\>', "once"))
    source(file);
  end
  if !any(exist(name) == [2 103])
    error("%s is not a function of the module", message.entry);
  end
  % No handle, which would prefer a function of Octave with this name.
  shim.routine = name;
  if strcmp(message.kind, "search")
    shim.routine = feval(name);
    if !isstruct(shim.routine) || !all(isfield(shim.routine, {"start", "search", "split"}))
      error("%s does not return a struct of the functions start, search and split", message.entry);
    end
    name = func2str(shim.routine.start);
  end
  shim.names = shim_parameters(text, name);
  shim_send("{\"type\":\"ready\"}");
end

function shim_run_all(calls)
  global shim;
  % A single call may continue from its state. Later frames replace the bytes.
  [shim.restored, invalid] = deal(shim.bytes, shim.invalid);
  shim.stopped = false;
  for call = calls
    shim.running = call{1}{1};
    try
      if !isempty(invalid)
        shim_invalid("%s", invalid);
      end
      json = shim_encode(shim_apply(shim.routine, shim.names, call{1}{2}));
      % Also if the routine has caught the stop.
      if !shim.stopped
        shim_answer(shim.running, json);
      end
    catch failure
      if !shim.stopped
        shim_fail(failure, shim.running);
      end
    end
    if shim.stopped
      break;
    end
  end
  shim_flush();
  if shim.stopped
    shim_send("{\"type\":\"stopped\"}");
  end
  shim.running = [];
end

function shim_main()
  global shim;
  shim = struct("input", fopen(getenv("ROUTINES_IN"), "r"), "output", fopen(getenv("ROUTINES_OUT"), "w"), ...
    "page", getenv("ROUTINES_PAGE"), "state", fullfile(pwd(), "state"), "bytes", [], "invalid", "", "results", {{}}, "size", 0, ...
    "sent", time(), "looked", 0, "request", 0, "bound", Inf, "counts", struct(), "running", [], "restored", [], "stopped", false, ...
    "has_states", false, "routine", [], "names", {{}});
  % So that routines do not write there by mistake.
  cellfun(@unsetenv, {"ROUTINES_IN", "ROUTINES_OUT", "ROUTINES_PAGE"});
  page_screen_output(false);
  % Values are nested 100 deep, with several functions at each level.
  max_recursion_depth(1000);
  following = [];
  while true
    message = following;
    following = [];
    if isempty(message)
      message = shim_receive();
    end
    switch message.type
      case "hello"
        if !any([message.versions{:}] == 1)
          shim_die("the host speaks versions %s of the protocol, this shim 1", num2str([message.versions{:}]));
        end
        shim_send(sprintf("{\"type\":\"ready\",\"version\":1,\"language\":\"octave %s\"}", version()));
      case "load"
        try
          shim_load(message);
        catch failure
          shim_fail(failure);
        end
      case "call"
        shim_run_all({{message.id, message.argument}});
      case "many"
        shim_run_all(message.calls);
      case "search"
        following = shim_start_search(shim_field(message, "argument"));
      otherwise
        shim_die("the host has sent the unknown message %s", message.type);
    end
  end
end

% Returns a client of the gateway at an address, whose requests may take so many seconds.
function r = routines_connect(url = "http://127.0.0.1:8790", timeout = 90)
  url = regexprep(url, "/+$", "");
  token = getenv("ROUTINES_TOKEN");
  if !isempty(getenv("ROUTINES_TOKEN_FILE"))
    token = strtrim(fileread(getenv("ROUTINES_TOKEN_FILE")));
  end
  is_here = !isempty(regexp(url, '^http://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$'));
  if !isempty(token) && !strncmp(url, "https://", 8) && !is_here
    error("the token is not sent to %s, which others could read: use https, or unset ROUTINES_TOKEN", url);
  end
  send = @(varargin) shim_request_over_http(url, token, timeout, varargin{:});
  job = @(id) shim_job(send, timeout, id);
  submit = @(body) job(shim_decode(send("POST", "/v1/jobs", shim_encode(body))).job);
  call = @(routine, argument) shim_result(shim_decode(send("POST", ["/v1/routines/" routine "/call"], shim_encode(struct("argument", {argument})))));
  r.job = job;
  r.call = @(routine, varargin) call(routine, varargin);
  % With the fields of a struct as named arguments.
  r.call_named = call;
  % One call for each element of a cell or an array. Options: struct("reduce", {{…}}, "by", …).
  r.map = @(routine, values, varargin) submit(shim_body(routine, shim_each(values), varargin{:}));
  % A cell with the arguments of each call, or a space, such as struct("range", {{0, 100}}).
  r.starmap = @(routine, points, varargin) submit(shim_body(routine, points, varargin{:}));
  r.search = @(routine, varargin) submit(struct("routine", routine, "argument", {varargin}));
  % Uploads a file, and returns its place in arguments.
  r.put = @(name, path) shim_put(send, name, path);
end

function points = shim_each(values)
  if !iscell(values)
    values = num2cell(values);
  end
  points = cellfun(@(value) {value}, values(:)', "UniformOutput", false);
end

function body = shim_body(routine, points, options = struct())
  body = options;
  body.routine = routine;
  body.arguments = points;
end

function place = shim_put(send, name, path)
  send("PUT", ["/v1/resources/" name], "", "", path);
  place = struct("resource", uint8(name));
end

% Sends a request, and returns the answer as text.
function answer = shim_request_over_http(url, token, timeout, method, path, body = "", accept = "", upload = "")
  names = {tempname(), tempname(), tempname()};
  remove = onCleanup(@() cellfun(@(name) exist(name, "file") && unlink(name), names));
  option = @(name, value) sprintf("%s = %s\n", name, shim_quoted(value));
  config = ["silent\nshow-error\n" option("url", [url path]) option("request", method) option("max-time", num2str(timeout)) ...
    option("output", names{3}) option("write-out", "%{http_code}")];
  if !isempty(token)
    config = [config option("header", ["Authorization: Bearer " token])];
  end
  if !isempty(accept)
    config = [config option("header", ["Accept: " accept])];
  end
  if !isempty(upload)
    config = [config option("upload-file", upload)];
  elseif !isempty(body)
    config = [config option("header", "Content-Type: application/json") option("data-binary", ["@" names{2}])];
    file = fopen(names{2}, "w");
    fwrite(file, body);
    fclose(file);
  end
  % In a file, so that other users do not see the token.
  mask = umask(77);
  file = fopen(names{1}, "w");
  umask(mask);
  fwrite(file, config);
  fclose(file);
  [failed, status] = system(["curl --config '" names{1} "'"]);
  if failed
    error("%s %s has no answer: %s", method, path, status);
  end
  answer = "";
  if exist(names{3}, "file")
    answer = fileread(names{3});
  end
  if status(1) != "2"
    try
      answer = shim_decode(answer).detail;
    end
    error(["routines:request:" status], "%s: %s", status, answer);
  end
end

% Returns the value of a result, or fails with its error.
function value = shim_result(result)
  if isfield(result, "error")
    error(struct("identifier", ["routines:call:" result.error.kind], "message", result.error.message));
  end
  value = result.value;
end

% Returns the functions of a job, which is started. Those with results wait until it is over.
function job = shim_job(send, timeout, id)
  path = ["/v1/jobs/" id];
  ask = @(method, more) shim_decode(send(method, [path more]));
  job.id = id;
  job.status = @() ask("GET", "");
  job.wait = @() shim_wait(ask, timeout);
  job.results = @() shim_results(send, path, shim_succeed(ask, timeout, id));
  job.values = @() cellfun(@shim_result, job.results(), "UniformOutput", false);
  job.reduced = @() shim_complete(shim_succeed(ask, timeout, id)).reduced;
  job.groups = @() shim_complete(shim_succeed(ask, timeout, id)).groups;
  job.found = @() shim_second(shim_succeed(ask, timeout, id), @() ask("GET", "/results"));
  job.cancel = @() ask("POST", "/cancel");
  job.rerun = @() shim_job(send, timeout, ask("POST", "/rerun").job);
end

function value = shim_second(first, second)
  value = second();
end

function state = shim_wait(ask, timeout)
  do
    state = ask("GET", sprintf("?wait=%d", min(60, floor(timeout / 2))));
  until any(strcmp(state.state, {"successful", "incomplete", "failed", "cancelled"}))
end

function state = shim_succeed(ask, timeout, id)
  state = shim_wait(ask, timeout);
  if !strcmp(state.state, "successful")
    error("routines:job", "job %s is %s: %s", id, state.state, disp(shim_field(state, "reason")));
  end
end

function state = shim_complete(state)
  failed = sum([struct2cell(state.tally.failed){:} 0]);
  if failed
    error("routines:job", "%d calls have failed: results() has the errors", failed);
  end
  if isfield(state, "reason")
    error("routines:job", "%s", state.reason);
  end
end

function results = shim_results(send, path, ~)
  lines = strtrim(send("GET", [path "/results"], "", "application/x-ndjson"));
  results = shim_decode(["[" strrep(lines, "\n", ",") "]"]);
end

if !isempty(getenv("ROUTINES_IN"))
  shim_main();
end
