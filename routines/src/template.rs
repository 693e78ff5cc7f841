//! Command lines as routines: the words of a template, and the runtime that starts them.

use std::{
    collections::BTreeMap,
    env,
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use serde_json::{Map, Value, json};
use taskwork_child::{read_tail, shown};
use taskwork_cli::Failure;

use crate::wire::{CallError, ErrorKind, FRAME_BYTES_MAX, Frame, Frames, check_value};

/// The name of the subcommand that runs command lines.
pub(crate) const RUN_TEMPLATE: &str = "run-template";

/// The placeholder of the folder of the package.
const PACKAGE: &str = "package";

/// The maximum size of the output of a command, with room for the rest of its message.
const OUTPUT_BYTES_MAX: usize = FRAME_BYTES_MAX - 1024;

const PART_BYTES: usize = 64 << 10;

/// The words of a command, each of texts and placeholders `{name}`.
#[derive(Debug)]
pub(crate) struct Template {
    words: Vec<Vec<Part>>,
    /// The names of the placeholders in the order of their first places.
    names: Vec<String>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Name(String),
}

impl Template {
    /// # Errors
    /// The reason if it has no program, or a wrong placeholder.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let words = text.split_whitespace().map(parse_word).collect::<Result<Vec<_>, _>>()?;
        if !matches!(words.first().map(Vec::as_slice), Some([Part::Text(_)])) {
            return Err("it must start with a program".to_owned());
        }
        let mut names = Vec::new();
        for part in words.iter().flatten() {
            if let Part::Name(name) = part
                && name != PACKAGE
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        Ok(Self { words, names })
    }

    /// Returns the words for an argument. A list has the values of the placeholders in their order, an object those with its
    /// names, and another value is that of the only one.
    fn fill(&self, argument: Value, package: &str) -> Result<Vec<String>, String> {
        let mut values: BTreeMap<String, Value> = match argument {
            Value::Object(named) if !is_special(&named) => named.into_iter().collect(),
            Value::Array(list) if list.len() == self.names.len() => {
                self.names.iter().cloned().zip(list).collect()
            }
            Value::Array(list) => {
                return Err(format!("{} arguments, but {} placeholders", list.len(), self.names.len()));
            }
            other => match &*self.names {
                [name] => [(name.clone(), other)].into(),
                names => return Err(format!("one argument, but {} placeholders", names.len())),
            },
        };
        if let Some(name) = values.keys().find(|name| !self.names.contains(name)) {
            return Err(format!("no placeholder has the name {name:?}"));
        }
        values.insert(PACKAGE.to_owned(), package.into());
        let text_of = |part: &Part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Name(name) => {
                let value = values.get(name).ok_or_else(|| format!("the argument {name} is missing"))?;
                Ok(as_text(value))
            }
        };
        self.words.iter().map(|word| word.iter().map(text_of).collect()).collect()
    }
}

fn parse_word(word: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest) = (Vec::new(), word);
    while let Some((text, inner)) = rest.split_once('{') {
        let (name, after) = inner.split_once('}').ok_or_else(|| format!("{word:?} has no closing brace"))?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !is_name {
            return Err(format!("the placeholder {{{name}}} needs letters, digits or `_`"));
        }
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(Part::Name(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

/// Returns whether an object stands for a number, an array or the path of a file.
fn is_special(object: &Map<String, Value>) -> bool {
    object.len() == 1 && object.keys().all(|key| key.starts_with('$'))
}

/// Returns a text as it is, a number or path as a text, and other values as JSON.
fn as_text(value: &Value) -> String {
    let special = value.as_object().filter(|object| is_special(object));
    let inner = special.and_then(|object| ["$file", "$i", "$f"].iter().find_map(|key| object.get(*key)));
    let value = inner.unwrap_or(value);
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A loaded routine.
struct Loaded {
    template: Template,
    folder: String,
}

impl Loaded {
    /// Runs the command. Returns its output as JSON.
    fn call(&self, argument: Value) -> Result<String, CallError> {
        let user = |message: String| CallError::new(ErrorKind::User, message);
        let words = self.template.fill(argument, &self.folder).map_err(user)?;
        let Some((program, arguments)) = words.split_first() else { return Err(user("no program".into())) };
        let own = Path::new(&self.folder).join(program);
        let mut command = Command::new(if own.is_file() { own.as_os_str() } else { program.as_ref() });
        let failed = |error: io::Error| user(format!("{program} cannot be run: {error}"));
        let errors = tempfile::tempfile_in(".").map_err(failed)?;
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(errors.try_clone().map_err(failed)?).spawn().map_err(failed)?;
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            // A command that writes more is stopped by its closed output.
            stdout.take(OUTPUT_BYTES_MAX as u64 + 1).read_to_end(&mut output).map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        let invalid =
            |reason: &str| CallError::new(ErrorKind::Invalid, format!("the output of {program} {reason}"));
        if output.len() > OUTPUT_BYTES_MAX {
            return Err(invalid(&format!("has more than {OUTPUT_BYTES_MAX} bytes")));
        }
        if !status.success() {
            return Err(user(format!("{program}: {status}{}", shown(&read_tail(errors)))));
        }
        let text = String::from_utf8(output).map_err(|_| invalid("is not UTF-8"))?;
        let text = if text.trim().is_empty() { "null" } else { text.trim() };
        let parsed = serde_json::from_str::<&serde_json::value::RawValue>(text);
        parsed.map_err(|error| invalid(&format!("is no JSON: {error}")))?;
        check_value(text).map_err(|error| invalid(&format!("is no value: {error}")))?;
        Ok(text.to_owned())
    }

    /// Makes a call, and returns the message with its answer.
    fn answer(&self, id: &Value, argument: Value) -> Frame {
        Frame::of_json(match self.call(argument) {
            Ok(value) => format!(r#"{{"type":"result","values":[[{id},{value}]]}}"#),
            Err(error) => {
                let CallError { kind, message, trace } = error;
                json!({ "type": "error", "id": id, "kind": kind, "message": message, "trace": trace })
                    .to_string()
            }
        })
    }
}

/// Runs command lines for a host until it exits.
pub(crate) fn run_template() -> Result<ExitCode, Failure> {
    let open = |name: &str, options: &mut OpenOptions| {
        let path = env::var_os(name).ok_or_else(|| Failure::usage("only a host starts this command"))?;
        options.open(path).map_err(Failure::failed)
    };
    let mut input = open("ROUTINES_IN", OpenOptions::new().read(true))?;
    let mut output = open("ROUTINES_OUT", OpenOptions::new().write(true))?;
    let (mut received, mut loaded) = (Frames::default(), None);
    let mut part = vec![0; PART_BYTES];
    loop {
        while let Some(frame) = received.next().map_err(Failure::failed)? {
            let message: Value = serde_json::from_str(&frame.json).map_err(Failure::failed)?;
            on_message(message, &mut loaded, &mut output)?;
        }
        match input.read(&mut part).map_err(Failure::failed)? {
            0 => return Ok(ExitCode::SUCCESS),
            bytes => received.extend(&part[..bytes]),
        }
    }
}

fn on_message(mut message: Value, loaded: &mut Option<Loaded>, output: &mut File) -> Result<(), Failure> {
    let mut send = |frame: Frame| {
        let encoded = frame.encode().map_err(Failure::failed)?;
        output.write_all(&encoded).map_err(Failure::failed)
    };
    let text = |field: &str| message[field].as_str().unwrap_or_default().to_owned();
    match (&*text("type"), &loaded) {
        ("hello", _) => {
            send(Frame::of_json(r#"{"type":"ready","version":1,"language":"command"}"#.to_owned()))
        }
        ("load", _) => {
            let answer = match Template::parse(&text("entry")) {
                Ok(template) => {
                    *loaded = Some(Loaded { template, folder: text("folder") });
                    json!({ "type": "ready" })
                }
                Err(reason) => json!({ "type": "error", "kind": "user", "message": reason }),
            };
            send(Frame::of_json(answer.to_string()))
        }
        ("call", Some(routine)) => send(routine.answer(&message["id"].take(), message["argument"].take())),
        ("many", Some(routine)) => {
            let Value::Array(calls) = message["calls"].take() else {
                return Err(Failure::failed("no calls"));
            };
            calls.into_iter().try_for_each(|mut call| send(routine.answer(&call[0].take(), call[1].take())))
        }
        (other, _) => Err(Failure::failed(format!("the host has sent the unknown message {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, argument: Value) -> Result<Vec<String>, String> {
        Template::parse(template)?.fill(argument, "/p")
    }

    #[test]
    fn placeholders_are_filled_as_single_words() {
        for (template, argument, words) in [
            ("wc -l {file}", json!([{ "$file": "/a b" }]), &["wc", "-l", "/a b"][..]),
            ("x {b} -n{a} {b}", json!([1.5, "$(y)"]), &["x", "1.5", "-n$(y)", "1.5"]),
            ("x {b} {a}", json!({ "a": [1, "c"], "b": null }), &["x", "null", r#"[1,"c"]"#]),
            ("x {a}", json!({ "$i": "9007199254740993" }), &["x", "9007199254740993"]),
            ("sh {package}/run.sh", json!([]), &["sh", "/p/run.sh"]),
        ] {
            assert_eq!(filled(template, argument).unwrap(), words, "{template}");
        }
    }

    #[test]
    fn wrong_templates_and_arguments_are_refused_with_their_reason() {
        for (template, argument, reason) in [
            ("", json!([]), "program"),
            ("{a} b", json!(["ls"]), "program"),
            ("x {a", json!([1]), "closing brace"),
            ("x {a b}", json!([1]), "closing brace"),
            ("x {a-b}", json!([1]), "a-b"),
            ("x {a}", json!([1, 2]), "2 arguments"),
            ("x {a} {b}", json!(1), "2 placeholders"),
            ("x {a}", json!({ "b": 1, "a": 2 }), "\"b\""),
            ("x {a} {b}", json!({ "a": 1 }), "b is missing"),
        ] {
            let refused = filled(template, argument).unwrap_err();
            assert!(refused.contains(reason), "{template}: {refused}");
        }
    }
}
