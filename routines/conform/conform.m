% The routines that `routines conform` calls, as in `conform.py`.
1;

function value = echo(value)
end

function values = doubled(array)
  values = 2 * array.numbers;
end

function list = pair(first, second = 2)
  list = {first, second};
end

function number = fails(number)
  if number < 0
    error("the number %d", number);
  end
end

function value = invalid(value)
  value = @() value;
end

function text = large(size)
  text = repmat("x", 1, size);
end

function size = prints(size)
  fputs(stdout, repmat("to standard output ", 1, floor(size / 19)));
  fputs(stderr, "to standard error\n");
end

function id = process()
  id = getpid();
end

function value = calls(routine, argument)
  value = routines_call(routine, argument);
end

function value = caught(routine, argument)
  try
    value = routines_call(routine, argument);
  catch failure
    value = {strrep(failure.identifier, "routines:call:", ""), !isempty(failure.message)};
  end
end

% Sums the numbers below `last`, and counts its restarts. Without one, it waits at the number `hold` for its stop.
function sums = adds(last, hold = -1, size = 0)
  state = routines_restored(struct("number", 0, "total", 0, "restarts", -1));
  state.restarts += 1;
  state.text = repmat("x", 1, size);
  while state.number < last
    routines_checkpoint(state);
    if state.number == hold && state.restarts == 0
      pause(0.0001);
      continue;
    end
    state.total += state.number;
    state.number += 1;
  end
  sums = {state.total, state.restarts};
end

function search = Count()
  search = struct("start", @Count_start, "search", @Count_search, "split", @Count_split);
end

function self = Count_start(left, hold = 0, cost = [])
  self = struct("left", left, "hold", hold, "cost", cost);
end

function waits(cx)
  while !cx.asked()
    pause(0.0001);
  end
end

function self = Count_search(self, cx)
  if !isnumeric(self.left)
    error("a search has a number of states");
  end
  while self.left > 0
    if self.left == self.hold
      self.hold = 0;
      % A shim need not split a search that has only started.
      pause(0.01);
      waits(cx);
    end
    if cx.asked()
      return;
    end
    self.left -= 1;
    cx.count("states");
    if cx.bound() != Inf
      cx.count("bound", fix(cx.bound()));
    end
  end
  if self.hold < 0
    self.hold = 0;
    waits(cx);
    return;
  end
  if !isempty(self.cost)
    cx.offer(self.cost, struct("cost", self.cost));
    self.cost = [];
  end
end

function [self, part] = Count_split(self)
  part = [];
  if self.left >= 2
    part = self;
    part.left = floor(self.left / 2);
    self.left -= part.left;
  end
end
