# Runs the routines of a package for a host: reads frames from one pipe and answers on another.
#
# A frame is `u32 length, u32 JSON length, JSON, bytes`, little endian. Each call is answered once, by a `result` or an
# `error`. Standard output and standard error are the log, so routines may print. R 4.0 or later with the package jsonlite.
#
# In other programs, `source("shim.R")` defines `routines$connect`, a client of a gateway, which uses the program curl.
#
# R cannot map the page of a search, or of a function with checkpoints: the shim reads its first byte once a millisecond.
# When it is set, the shim sends the state.

# The environment of this file, so that routines neither see nor replace its functions.
shim <- new.env()
local(envir = shim, {
  VERSION <- 1
  FRAME_BYTES_MAX <- 64 * 2^20
  # Room for the rest of a message around a value.
  VALUE_BYTES_MAX <- FRAME_BYTES_MAX - 1024
  DEPTH_MAX <- 100
  INTEGER_MAX <- 2^53
  PART_BYTES <- 65536
  FLUSH_SECONDS <- 0.01
  FLUSH_BYTES <- 2^20
  STATE_BYTES_MAX <- 2^20
  SOLUTION_BYTES_MAX <- 64 * 2^10
  NAMES_MAX <- 1000
  # Requests in the first byte of the page: 1 and 2 to a search, 3 also to a function, 4 to a function.
  BOUND <- 1
  SPLIT <- 2
  PAUSE <- 3
  # The time that a search runs before it is split again, so that it advances however often parts are requested.
  SPLIT_SECONDS <- 0.001
  # The time between two reads of the page.
  LOOK_SECONDS <- 0.001
  # The size of the numbers of an array, negative if they have no sign, and the largest and smallest one.
  SIZES <- c(i8 = 1, i16 = 2, i32 = 4, i64 = 8, u8 = -1, u16 = -2, u32 = -4, u64 = -8, f32 = 4, f64 = 8)
  # No character of Unicode. It stands for U+0000, which no string of R contains.
  NUL <- "\ufdd0"

  now <- function() as.numeric(Sys.time())

  condition <- function(class, message, ...) structure(class = c(class, "error", "condition"), list(message = message, call = NULL, ...))
  invalid <- function(...) stop(condition("routines_invalid", sprintf(...)))
  die <- function(...) {
    message(sprintf(...))
    quit("no", 1, FALSE)
  }

  # Returns texts as JSON.
  quoted <- function(texts) {
    texts <- enc2utf8(texts)
    if (!all(validUTF8(texts))) invalid("a string in the result is no text in UTF-8")
    odd <- grepl("[\\x01-\\x1f\"\\\\]", texts, perl = TRUE)
    if (any(odd)) {
      changed <- gsub("([\"\\\\])", "\\\\\\1", texts[odd], perl = TRUE)
      for (code in 1:31) changed <- gsub(intToUtf8(code), sprintf("\\u%04x", code), changed, fixed = TRUE)
      texts[odd] <- changed
    }
    paste0("\"", texts, "\"")
  }

  # Returns doubles as JSON, in the shortest form that is exact or with 17 digits.
  numbers <- function(values) {
    whole <- !is.na(values) & abs(values) <= INTEGER_MAX & values == trunc(values)
    texts <- sprintf("%.17g", values)
    texts[whole] <- sprintf("%.0f", values[whole])
    texts[whole & values == 0 & 1 / values < 0] <- "-0.0"
    rest <- is.finite(values) & !whole
    if (any(rest)) {
      # R rounds some numbers differently when it reads them.
      short <- sprintf("%.15g", values[rest])
      read <- jsonlite::parse_json(paste0("[", paste(short, collapse = ","), "]"), simplifyVector = TRUE)
      exact <- texts[rest]
      # With a point it is no integer.
      exact <- paste0(exact, ifelse(grepl("[.e]", exact), "", ".0"))
      texts[rest] <- ifelse(read == values[rest], short, exact)
    }
    texts[is.na(values)] <- "null"
    texts[is.nan(values)] <- "{\"$f\":\"nan\"}"
    texts[is.infinite(values)] <- ifelse(values[is.infinite(values)] > 0, "{\"$f\":\"inf\"}", "{\"$f\":\"-inf\"}")
    texts
  }

  # Returns a result as JSON that every language reads alike.
  encode <- function(value, depth = 0) {
    if (is.null(value)) return("null")
    if (inherits(value, "routines_text")) return(quoted_bytes(unclass(value)))
    if (inherits(value, "routines_resource")) return(sprintf("{\"$resource\":%s}", quoted(unclass(value))))
    if (inherits(value, "routines_integer")) return(sprintf("{\"$i\":\"%s\"}", unclass(value)))
    if (inherits(value, "routines_array") || (is.numeric(value) && !is.null(dim(value)))) return(encode_array(value))
    if (is.factor(value)) value <- as.character(value)
    is_plain <- is.list(value) || (is.atomic(value) && !is.object(value) && !is.complex(value) && !is.raw(value))
    if (!is_plain) invalid("a value of the class %s is no result: return NULL, logical, numeric, character, list or array", class(value)[1])
    if (!is.list(value)) {
      parts <- if (is.logical(value)) ifelse(value, "true", "false") else if (is.character(value)) quoted(value) else numbers(as.double(value))
      parts[is.na(value) & !is.nan(value)] <- "null"
      if (length(value) == 1 && is.null(names(value))) return(parts)
    }
    if (depth >= DEPTH_MAX) invalid("the result is nested more than %d deep", DEPTH_MAX)
    if (is.list(value)) parts <- vapply(unname(as.list(value)), encode, "", depth + 1)
    keys <- names(value)
    if (length(keys) == 0 && !is.null(keys)) return("{}")
    if (is.null(keys)) return(paste0("[", paste(parts, collapse = ","), "]"))
    if (anyNA(keys) || anyDuplicated(keys)) invalid("the names of a list in the result are not different, or some are missing")
    if (length(keys) == 1 && startsWith(keys, "$")) invalid("a list with one name that starts with $ in the result is reserved")
    paste0("{", paste(quoted(keys), parts, sep = ":", collapse = ","), "}")
  }

  quoted_bytes <- function(bytes) {
    ends <- c(which(bytes == 0), length(bytes) + 1)
    starts <- c(1, head(ends, -1) + 1)
    parts <- mapply(function(from, to) rawToChar(bytes[seq_len(to - from) + from - 1]), starts, ends)
    Encoding(parts) <- "UTF-8"
    paste0("\"", paste(substring(quoted(parts), 2, nchar(quoted(parts)) - 1), collapse = "\\u0000"), "\"")
  }

  encode_array <- function(value) {
    type <- attr(value, "dtype")
    if (is.null(type)) type <- if (is.integer(value) && !anyNA(value)) "i32" else "f64"
    shape <- dim(value)
    if (inherits(value, "routines_array")) {
      data <- value$data
      shape <- value$shape
    } else {
      flat <- as.vector(if (length(shape) > 1) aperm(value) else value)
      data <- array_bytes(flat, type)
    }
    shape <- paste(sprintf("%.0f", shape), collapse = ",")
    sprintf("{\"$a\":{\"dtype\":\"%s\",\"shape\":[%s],\"data\":\"%s\"}}", type, shape, gsub("\n", "", jsonlite::base64_enc(data)))
  }

  array_bytes <- function(flat, type) {
    size <- abs(SIZES[[type]])
    if (startsWith(type, "f")) return(writeBin(as.double(flat), raw(), size = size, endian = "little"))
    bits <- 8 * size
    least <- if (SIZES[[type]] < 0) 0 else -2^(bits - 1)
    most <- least + 2^bits
    if (anyNA(flat) || any(flat != trunc(flat) | flat < least | flat >= most)) invalid("an array of the type %s has a number that does not fit", type)
    bytes <- matrix(raw(), size, length(flat))
    # Doubles have no bits: each byte is a remainder.
    negative <- flat < 0
    flat[negative] <- -flat[negative] - 1
    for (row in seq_len(size)) {
      bytes[row, ] <- as.raw(flat %% 256)
      flat <- flat %/% 256
    }
    bytes[, negative] <- !bytes[, negative]
    as.vector(bytes)
  }

  # Returns an array of doubles with the attribute `dtype`. Integers beyond 2^53 keep their bytes instead.
  decode_array <- function(array) {
    type <- array$dtype
    wrong <- function() invalid("the argument is invalid: an array is wrong: its type, shape and data do not match")
    if (!is.character(type) || !type %in% names(SIZES) || !is.character(array$data) || !is.list(array$shape)) wrong()
    is_length <- function(one) is.numeric(one) && length(one) == 1 && one >= 0 && one == trunc(one)
    if (!is.null(names(array$shape)) || !all(vapply(array$shape, is_length, NA))) wrong()
    shape <- as.double(unlist(array$shape))
    size <- abs(SIZES[[type]])
    data <- jsonlite::base64_dec(array$data)
    if (prod(shape) * size != length(data) || nchar(array$data) != 4 * ceiling(length(data) / 3)) wrong()
    if (startsWith(type, "f")) {
      flat <- readBin(data, "double", length(data) / size, size = size, endian = "little")
    } else {
      bytes <- matrix(as.integer(data), size)
      negative <- SIZES[[type]] > 0 & bytes[size, ] > 127
      bytes[, negative] <- 255 - bytes[, negative]
      flat <- colSums(bytes * 256^(seq_len(size) - 1))
      flat[negative] <- -flat[negative] - 1
      if (any(abs(flat) >= INTEGER_MAX)) return(structure(list(data = data, shape = shape), dtype = type, class = "routines_array"))
    }
    # A scalar has no shape in R.
    if (length(shape) == 0) return(structure(list(data = data, shape = shape), dtype = type, class = "routines_array"))
    value <- if (length(shape) > 1) aperm(array(flat, rev(shape))) else array(flat, shape)
    structure(value, dtype = type)
  }

  # Converts lists that stand for numbers, arrays, paths of files, and texts with U+0000.
  decode <- function(value) {
    if (is.character(value)) {
      if (!grepl(NUL, value, fixed = TRUE)) return(value)
      parts <- strsplit(paste0(value, NUL), NUL, fixed = TRUE)[[1]]
      bytes <- unlist(lapply(parts, function(part) c(charToRaw(part), as.raw(0))))
      # The end of the last part was added.
      return(structure(head(bytes, -1), class = "routines_text"))
    }
    if (!is.list(value)) return(value)
    if (length(value) == 1 && !is.null(names(value))) {
      special <- value[[1]]
      switch(names(value),
        "$file" = return(special),
        "$i" = {
          if (!grepl("^-?[0-9]+$", special)) invalid("the argument is invalid: %s is no integer", special)
          if (abs(as.double(special)) < INTEGER_MAX) return(as.double(special))
          return(structure(special, class = "routines_integer"))
        },
        "$f" = return(switch(special, nan = NaN, inf = Inf, "-inf" = -Inf, as.double(special))),
        "$a" = return(decode_array(special))
      )
    }
    value[] <- lapply(value, decode)
    value
  }

  # The frames from and to the host, and the page.
  input <- output <- page <- NULL
  # The bytes of the last frame, and whether it may have special values.
  bytes <- raw()
  has_special <- FALSE

  take <- function(size) {
    parts <- list()
    while (size > 0) {
      part <- readBin(input, "raw", min(size, PART_BYTES))
      if (length(part) == 0) quit("no", 0, FALSE)
      parts[[length(parts) + 1]] <- part
      size <- size - length(part)
    }
    if (length(parts) == 1) parts[[1]] else as.raw(unlist(parts))
  }

  receive <- function() {
    lengths <- readBin(take(8), "integer", 2, endian = "little") %% 2^32
    if (lengths[1] < 4 || lengths[1] > FRAME_BYTES_MAX || lengths[2] > lengths[1] - 4) {
      die("the host has sent a frame of %.0f bytes with JSON of %.0f bytes", lengths[1], lengths[2])
    }
    content <- take(lengths[1] - 4)
    bytes <<- tail(content, length(content) - lengths[2])
    parse(rawToChar(head(content, lengths[2])))
  }

  # Returns the value of a text in JSON without its special values.
  parse <- function(text) {
    Encoding(text) <- "UTF-8"
    # An escaped backslash precedes no escape.
    if (grepl("\\u0000", text, fixed = TRUE)) text <- gsub("(?<!\\\\)((?:\\\\\\\\)*)\\\\u0000", paste0("\\1", NUL), text, perl = TRUE)
    has_special <<- grepl("\"(\\$|\\\\u0024)", text) || grepl(NUL, text, fixed = TRUE)
    jsonlite::parse_json(text)
  }

  decoded <- function(value, special = NULL) {
    # R evaluates arguments late, and this one may parse the message.
    force(value)
    if (if (is.null(special)) has_special else special) decode(value) else value
  }

  send <- function(json, data = raw()) {
    json <- charToRaw(enc2utf8(json))
    lengths <- writeBin(c(length(json) + length(data) + 4L, length(json)), raw(), endian = "little")
    writeBin(c(lengths, json, data), output)
  }

  # Results that are sent together.
  results <- character()
  results_bytes <- 0
  results_sent <- now()

  flush <- function() {
    if (length(results)) send(paste0("{\"type\":\"result\",\"values\":[", paste(results, collapse = ","), "]}"))
    results <<- character()
    results_bytes <<- 0
    results_sent <<- now()
  }

  answer <- function(id, encoded) {
    size <- nchar(encoded, "bytes")
    if (size > VALUE_BYTES_MAX) invalid("the result has %.0f bytes, more than %.0f", size, VALUE_BYTES_MAX)
    if (results_bytes + size > FLUSH_BYTES) flush()
    results[length(results) + 1] <<- sprintf("[%.0f,%s]", id, encoded)
    results_bytes <<- results_bytes + size
    if (now() - results_sent > FLUSH_SECONDS) flush()
  }

  # Reports the failure of a call with an id, of a search, or of the load.
  fail <- function(error, trace, id = NULL) {
    flush()
    kind <- if (inherits(error, "routines_invalid")) "invalid" else "user"
    message <- iconv(substr(conditionMessage(error), 1, 4096), "", "UTF-8", sub = "byte")
    if (grepl("Permission denied", paste(message, trace)) && nzchar(Sys.getenv("ROUTINES_ISOLATED"))) {
      message <- paste0(message, ": routines are isolated: --read, --write and --network grant files and ports")
    }
    trace <- if (kind == "user") iconv(substr(trace, 1, 16384), "", "UTF-8", sub = "byte") else ""
    id <- if (is.null(id)) "" else sprintf("\"id\":%.0f,", id)
    send(sprintf("{\"type\":\"error\",%s\"kind\":\"%s\",\"message\":%s,\"trace\":%s}", id, kind, quoted(message), quoted(trace)))
  }

  # The number of frames below those of the routine.
  base <- 0

  described <- function(call) {
    at <- attr(call, "srcref")
    place <- if (is.null(at)) "" else sprintf(" (%s:%d)", basename(attr(at, "srcfile")$filename), at[1])
    paste0(" at ", deparse(call[[1]], nlines = 1)[1], place)
  }

  # Evaluates code. Reports a failure. Returns whether the call was stopped instead.
  is_stopped <- function(code, id = NULL) {
    trace <- ""
    note <- function(error) {
      calls <- sys.calls()
      # Without this function and those of R that call it.
      own <- if (base > 0) calls[seq_len(max(0, length(calls) - 1 - base)) + base] else list()
      own <- Filter(function(call) !identical(call[[1]], quote(.handleSimpleError)), own)
      trace <<- paste(c(conditionMessage(error), rev(vapply(own, described, ""))), collapse = "\n")
    }
    base <<- 0
    report <- function(error) fail(error, trace, id)
    withRestarts({
      tryCatch(withCallingHandlers(code, error = note), error = report)
      FALSE
    }, routines_stop = function() TRUE)
  }

  # Makes a call: a list without names has positional arguments, one with names has named ones, another value is the only one.
  apply_routine <- function(routine, argument) {
    if (!is.list(argument) || is.object(argument)) argument <- list(argument)
    unknown <- setdiff(names(argument), names(formals(args(routine))))
    if (length(unknown) && !"..." %in% names(formals(args(routine)))) stop(sprintf("the routine has no parameter \"%s\"", unknown[1]), call. = FALSE)
    # The name of the routine in traces.
    within <- list2env(structure(list(routine), names = loaded$name), parent = globalenv())
    base <<- sys.nframe() + 1
    do.call(loaded$name, argument, envir = within)
  }

  # The page: the request and the bound.
  looked <- 0
  request <- 0
  countdown <- 0

  look <- function() {
    repeat {
      read <- readBin(page, "raw", 24)
      if (identical(read[9:16], read[17:24])) break
    }
    read
  }

  # Returns the request. Reads it once a millisecond, and the clock at each or, if states are short, at each 16th call.
  asked <- function() {
    countdown <<- countdown - 1
    if (countdown <= 0) {
      time <- now()
      is_due <- time - looked >= LOOK_SECONDS
      countdown <<- if (is_due) 1 else 16
      if (is_due) {
        request <<- as.integer(readBin(page, "raw", 1))
        looked <<- now()
      }
    }
    request != 0
  }

  requested <- function() {
    countdown <<- looked <<- 0
    asked()
    request
  }

  clear <- function() {
    file <- file(page, "r+b")
    on.exit(close(file))
    seek(file, 0, rw = "write")
    writeBin(raw(1), file)
    request <<- 0
  }

  serialized <- function(value, name) {
    state <- tryCatch(serialize(value, NULL), error = function(error) invalid("%s cannot be serialized: %s", name, conditionMessage(error)))
    if (length(state) > STATE_BYTES_MAX) invalid("%s has %d bytes, more than %.0f: keep large data in files", name, length(state), STATE_BYTES_MAX)
    state
  }

  # The job of a running search, as its functions `asked()`, `bound()`, `count(name, number)` and `offer(cost, solution)`.
  bound <- Inf
  counts <- numeric()
  cx <- list(
    asked = asked,
    bound = function() bound,
    count = function(name, number = 1) counts[[name]] <<- sum(counts[name], number, na.rm = TRUE),
    offer = function(cost, solution) {
      if (!is.finite(cost)) stop("the cost of a solution is ", cost, ", which is not finite")
      if (cost >= bound) return(FALSE)
      encoded <- encode(solution)
      if (nchar(encoded, "bytes") > SOLUTION_BYTES_MAX) stop("the solution has more than ", SOLUTION_BYTES_MAX, " bytes as JSON")
      send(sprintf("{\"type\":\"offer\",\"cost\":%s,\"solution\":%s}", numbers(as.double(cost)), encoded))
      bound <<- cost
      TRUE
    }
  )

  # Sends a message with the new numbers.
  send_counts <- function(head, data = raw()) {
    if (length(counts) > NAMES_MAX) invalid("cx$count has more than %d names", NAMES_MAX)
    wrong <- counts != trunc(counts) | abs(counts) > INTEGER_MAX
    if (any(wrong)) invalid("cx$count of %s is no integer up to 2^53: add less at a time", names(counts)[wrong][1])
    pairs <- if (length(counts)) paste(quoted(names(counts)), sprintf("%.0f", counts), sep = ":", collapse = ",") else ""
    send(sprintf("{\"type\":%s,\"counts\":{%s}}", head, pairs), data)
    counts <<- numeric()
  }

  # Searches until all is done, or the host has sent another message than `go`, which is returned.
  run_search <- function(search, self) {
    since <- now()
    repeat {
      bound <<- min(bound, readBin(look()[9:16], "double"))
      countdown <<- looked <<- 0
      search$search(self, cx)
      asked <- requested()
      if (asked == 0) {
        send_counts("\"result\"")
        return(NULL)
      }
      if (asked == BOUND || (asked == SPLIT && now() - since < SPLIT_SECONDS)) {
        # Before the bound is read. The host repeats a request that is cleared here.
        clear()
        next
      }
      part <- if (asked == SPLIT) search$split(self)
      rest <- serialized(as.list(self), "the state of the search")
      if (is.null(part)) {
        send_counts("\"paused\"", rest)
      } else {
        part <- serialized(part, "the state of the search")
        send_counts(sprintf("\"child\",\"part\":%d", length(part)), c(part, rest))
      }
      message <- receive()
      if (message$type != "go") return(message)
      since <- now()
    }
  }

  # Runs a search from its state or its argument. Returns the message that has replaced it, if there is one.
  start_search <- function(argument) {
    following <- NULL
    bound <<- Inf
    counts <<- numeric()
    search <- loaded$routine
    is_stopped({
      self <- if (length(bytes)) unserialize(bytes) else apply_routine(search$start, decoded(argument))
      following <- run_search(search, list2env(self, parent = emptyenv()))
    })
    following
  }

  call_error <- function(error) condition("routines_call_error", error$message, kind = error$kind, trace = error$trace)

  # The running call: its id, and the state from which it continues; NULL in a search.
  running <- NULL
  has_states <- FALSE
  needs_call <- function(name) if (is.null(running)) stop(sprintf("routines$%s works in a running routine that is a function", name), call. = FALSE)

  routines <- list(
    # Calls another routine from a running one, and returns its result.
    call = function(routine, ...) {
      needs_call("call")
      flush()
      send(sprintf("{\"type\":\"call\",\"routine\":%s,\"argument\":%s}", quoted(routine), encode(list(...))))
      answer <- receive()
      if (is.null(answer$error)) return(decoded(answer$value))
      stop(call_error(answer$error))
    },
    # Offers a state from which the running call can continue, in case it is interrupted here or later.
    checkpoint = function(state) {
      needs_call("checkpoint")
      if (running$is_stopped) invokeRestart("routines_stop")
      if (has_states && !asked()) return(invisible())
      has_states <<- TRUE
      flush()
      state <- serialized(state, "the state of the call")
      stops <- requested() == PAUSE
      # Before the state is sent. The host repeats a request that is cleared here.
      if (!stops) clear()
      send(sprintf("{\"type\":\"checkpoint\",\"id\":%.0f}", running$id), state)
      running$is_stopped <<- stops
      if (stops) invokeRestart("routines_stop")
      invisible()
    },
    # Returns the state from which the running call continues, or the default if it starts.
    restored = function(default = NULL) {
      needs_call("restored")
      if (length(running$restored)) unserialize(running$restored) else default
    },
    # An integer of any size, by its digits.
    integer = function(digits) structure(as.character(digits), class = "routines_integer"),
    # A copy of the fields of a search with other values.
    but = function(self, ...) utils::modifyList(as.list(self), list(...), keep.null = TRUE)
  )

  # The entry of the package: the name and the function, or the list of functions of a search.
  loaded <- NULL

  load <- function(message) {
    entry <- strsplit(message$entry, ":", fixed = TRUE)[[1]]
    file <- file.path(message$folder, paste0(gsub(".", "/", entry[1], fixed = TRUE), ".R"))
    if (!file.exists(file)) stop(sprintf("the package has no module %s: no file %s", entry[1], file), call. = FALSE)
    assign("routines", routines, globalenv())
    base <<- sys.nframe()
    # With the places of the code. Other files of the package are sourced by their names in the folder `package`.
    assign("package", message$folder, globalenv())
    for (code in base::parse(file, keep.source = TRUE, encoding = "UTF-8")) eval(code, globalenv())
    routine <- get0(entry[2], globalenv(), inherits = FALSE)
    is_search <- is.list(routine) && all(vapply(routine[c("start", "search", "split")], is.function, NA))
    if (message$kind == "search" && !is_search) stop(sprintf("%s is not a list of the functions start, search and split", message$entry), call. = FALSE)
    if (message$kind != "search" && !is.function(routine)) stop(sprintf("%s is not a function", message$entry), call. = FALSE)
    loaded <<- list(name = entry[2], routine = routine)
    send("{\"type\":\"ready\"}")
  }

  run_all <- function(calls) {
    # A single call may continue from its state. Later frames replace the bytes, and whether there are special values.
    restored <- bytes
    special <- has_special
    for (call in calls) {
      running <<- list(id = call[[1]], restored = restored, is_stopped = FALSE)
      stops <- is_stopped({
        value <- encode(apply_routine(loaded$routine, decoded(call[[2]], special)))
        # Also if the routine has caught the stop.
        if (!running$is_stopped) answer(call[[1]], value)
      }, call[[1]])
      if (stops || running$is_stopped) break
    }
    flush()
    if (running$is_stopped) send("{\"type\":\"stopped\"}")
    running <<- NULL
  }

  # Returns a client of the gateway at an address, whose requests may take so many seconds.
  connect <- function(url = "http://127.0.0.1:8790", timeout = 90) {
    url <- sub("/+$", "", url)
    file <- Sys.getenv("ROUTINES_TOKEN_FILE")
    token <- if (nzchar(file)) trimws(readLines(file, 1)) else Sys.getenv("ROUTINES_TOKEN")
    is_here <- grepl("^http://(localhost|127(\\.[0-9]+){3}|\\[::1\\])(:[0-9]+)?$", url)
    if (nzchar(token) && !startsWith(url, "https://") && !is_here) {
      stop("the token is not sent to ", url, ", which others could read: use https, or unset ROUTINES_TOKEN")
    }
    # Sends a request with a text or a file, and returns the answer as text.
    send <- function(method, path, body = NULL, headers = character(), upload = NULL) {
      files <- tempfile(c("config", "body", "answer"))
      on.exit(unlink(files))
      if (!is.null(body)) {
        headers <- c(headers, "Content-Type: application/json")
        writeLines(enc2utf8(body), files[2], useBytes = TRUE)
      }
      if (nzchar(token)) headers <- c(headers, paste("Authorization: Bearer", token))
      options <- c(url = paste0(url, path), request = method, "max-time" = timeout, output = files[3], "write-out" = "%{http_code}",
        "data-binary" = if (!is.null(body)) paste0("@", files[2]), "upload-file" = upload, structure(headers, names = rep("header", length(headers))))
      # In a file, so that other users do not see the token.
      file.create(files[1])
      Sys.chmod(files[1], "600", use_umask = FALSE)
      writeLines(c("silent", "show-error", paste0(names(options), " = ", quoted(options))), files[1], useBytes = TRUE)
      status <- suppressWarnings(system2("curl", c("--config", shQuote(files[1])), stdout = TRUE))
      if (!is.null(attr(status, "status"))) stop(sprintf("%s %s has no answer: curl has failed with %d", method, path, attr(status, "status")), call. = FALSE)
      answer <- if (file.exists(files[3])) paste(readLines(files[3], encoding = "UTF-8", warn = FALSE), collapse = "\n") else ""
      if (startsWith(status, "2")) return(answer)
      detail <- tryCatch(jsonlite::parse_json(answer)$detail, error = function(error) answer)
      stop(condition("routines_request_error", sprintf("%s: %s", status, detail), status = as.integer(status)))
    }
    ask <- function(...) decoded(parse(send(...)))
    place <- function(name) sub("%40", "@", utils::URLencode(name, reserved = TRUE), fixed = TRUE)
    submit <- function(routine, ..., key = NULL) {
      body <- Filter(Negate(is.null), list(routine = routine, ...))
      job(ask("POST", "/v1/jobs", encode(body), if (!is.null(key)) paste("Idempotency-Key:", key))$job)
    }
    value_of <- function(result) if (is.null(result$error)) result$value else stop(call_error(result$error))
    # The functions of a job, which is started. Those with results wait until it is over.
    job <- function(id) {
      path <- paste0("/v1/jobs/", place(id))
      status <- function(seconds = 0) ask("GET", sprintf("%s?wait=%d", path, as.integer(seconds)))
      wait <- function() {
        repeat {
          state <- status(min(60, timeout %/% 2))
          if (state$state %in% c("successful", "incomplete", "failed", "cancelled")) return(state)
        }
      }
      succeed <- function() {
        state <- wait()
        if (state$state != "successful") stop(condition("routines_job_error", sprintf("job %s is %s: %s", id, state$state, toString(state$reason))))
        state
      }
      complete <- function() {
        state <- succeed()
        failed <- sum(unlist(state$tally$failed))
        if (failed > 0) stop(condition("routines_job_error", sprintf("%d calls of job %s have failed: results() has the errors", failed, id)))
        if (!is.null(state$reason)) stop(condition("routines_job_error", sprintf("job %s: %s", id, state$reason)))
        state
      }
      results <- function() {
        succeed()
        lines <- send("GET", paste0(path, "/results"), headers = "Accept: application/x-ndjson")
        decoded(parse(paste0("[", gsub("\n", ",", lines, fixed = TRUE), "]")))
      }
      list(
        id = id, status = status, wait = wait, results = results,
        values = function() lapply(results(), value_of),
        reduced = function() complete()$reduced,
        groups = function() complete()$groups,
        found = function() {
          succeed()
          ask("GET", paste0(path, "/results"))
        },
        cancel = function() ask("POST", paste0(path, "/cancel")),
        rerun = function() job(ask("POST", paste0(path, "/rerun"))$job)
      )
    }
    list(
      # Calls a routine with positional or named arguments.
      call = function(routine, ...) value_of(ask("POST", sprintf("/v1/routines/%s/call", place(routine)), encode(list(argument = list(...))))),
      # Starts a job with one call for each value. `reduce` has the names of numbers, and `by` the arguments that select groups.
      map = function(routine, values, reduce = NULL, by = NULL, key = NULL) {
        submit(routine, arguments = lapply(unname(as.list(values)), list), reduce = as.list(reduce), by = by, key = key)
      },
      # Starts a job with a list of arguments for each call, or with a space, such as `list(range = c(0, 100))`.
      starmap = function(routine, points, reduce = NULL, by = NULL, key = NULL) submit(routine, arguments = points, reduce = as.list(reduce), by = by, key = key),
      search = function(routine, ...) submit(routine, argument = list(...)),
      job = job,
      # Uploads a file, and returns its place in arguments.
      put = function(name, path) {
        send("PUT", paste0("/v1/resources/", place(name)), upload = path)
        structure(name, class = "routines_resource")
      }
    )
  }

  main <- function() {
    input <<- fifo(Sys.getenv("ROUTINES_IN"), "rb", blocking = TRUE)
    output <<- fifo(Sys.getenv("ROUTINES_OUT"), "wb", blocking = TRUE)
    page <<- Sys.getenv("ROUTINES_PAGE")
    # So that routines do not write there by mistake.
    Sys.unsetenv(c("ROUTINES_IN", "ROUTINES_OUT", "ROUTINES_PAGE"))
    following <- NULL
    repeat {
      message <- if (is.null(following)) receive() else following
      following <- NULL
      switch(message$type,
        hello = {
          if (!VERSION %in% unlist(message$versions)) die("the host speaks versions %s of the protocol, this shim %d", toString(message$versions), VERSION)
          send(sprintf("{\"type\":\"ready\",\"version\":%d,\"language\":\"R %s\"}", VERSION, getRversion()))
        },
        load = is_stopped(load(message)),
        call = run_all(list(message[c("id", "argument")])),
        many = run_all(message$calls),
        search = following <- start_search(message$argument),
        die("the host has sent the unknown message %s", message$type)
      )
    }
  }
})
if (nzchar(Sys.getenv("ROUTINES_IN"))) shim$main() else routines <- list(connect = shim$connect, integer = shim$routines$integer)
