# The routines that `routines conform` calls, as in `conform.py`.

echo <- function(value) value

doubled <- function(values) 2 * values

pair <- function(first, second = 2) list(first, second)

fails <- function(number) {
  if (number < 0) stop("the number ", number)
  number
}

invalid <- function(value) new.env()

large <- function(size) strrep("x", size)

prints <- function(size) {
  cat(strrep("to standard output ", size %/% 19))
  message("to standard error")
  size
}

process <- function() Sys.getpid()

calls <- function(routine, argument) routines$call(routine, argument)

caught <- function(routine, argument) {
  tryCatch(
    routines$call(routine, argument),
    routines_call_error = function(error) list(error$kind, nzchar(conditionMessage(error)))
  )
}

# Sums the numbers below `last`, and counts its restarts. Without one, it waits at the number `hold` for its stop.
adds <- function(last, hold = -1, size = 0) {
  state <- routines$restored(list(number = 0, total = 0, restarts = -1))
  state$restarts <- state$restarts + 1
  while (state$number < last) {
    routines$checkpoint(c(state[1:3], text = strrep("x", max(0, size))))
    if (state$number == hold && state$restarts == 0) {
      Sys.sleep(0.0001)
      next
    }
    state$total <- state$total + state$number
    state$number <- state$number + 1
  }
  list(state$total, state$restarts)
}

wait <- function(cx) while (!cx$asked()) Sys.sleep(0.0001)

Count <- list(
  start = function(left, hold = 0, cost = NULL) list(left = left, hold = hold, cost = cost),
  search = function(self, cx) {
    if (!is.numeric(self$left)) stop("a search has a number of states")
    while (self$left > 0) {
      if (self$left == self$hold) {
        self$hold <- 0
        # A shim need not split a search that has only started.
        Sys.sleep(0.01)
        wait(cx)
      }
      if (cx$asked()) return()
      self$left <- self$left - 1
      cx$count("states")
      if (cx$bound() != Inf) cx$count("bound", trunc(cx$bound()))
    }
    if (self$hold < 0) {
      self$hold <- 0
      wait(cx)
      return()
    }
    if (!is.null(self$cost)) {
      cx$offer(self$cost, list(cost = self$cost))
      self$cost <- NULL
    }
  },
  split = function(self) {
    if (self$left < 2) return(NULL)
    give <- self$left %/% 2
    self$left <- self$left - give
    routines$but(self, left = give)
  }
)
