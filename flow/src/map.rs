//! One command for each of many values, such as `flow map 'gzip -c {}' --out '{}.gz' *.txt`.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use dataflow_framework::Options;
use serde::{Deserialize, Serialize};

use crate::{
    job_file,
    pattern::COMBINATIONS_MAX,
    plan::{COMMAND_BYTES_MAX, Kind, Plan, Size, Step, check_path, quoted, word},
    record::FOLDER,
};

/// The maximum number of characters of a value and of its result in the table.
const VALUE_CHARS_MAX: usize = 40;
const RESULT_CHARS_MAX: usize = 100;

/// The options of a command for each of many values.
#[derive(Debug, Args)]
pub(crate) struct Map {
    /// Run a command for each value, instead of a job file. In the command, `{}` is the value, `{.}` the value without its
    /// ending, `{/}` its file name, and `{/.}` its file name without ending; by default, the value is the last word
    #[arg(long = "map", id = "map")]
    is_selected: bool,
    /// With --map, the values. A value that is the path of a file is an input of its command
    #[arg(value_name = "VALUE", requires = "map")]
    values: Vec<String>,
    /// With --map, further values: the lines of this file, or of the standard input (-)
    #[arg(long, value_name = "FILE", requires = "map")]
    lines: Option<PathBuf>,
    /// With --map, a file that all commands read
    #[arg(long = "in", value_name = "FILE", requires = "map")]
    inputs: Vec<String>,
    /// With --map, a file that the command writes, such as '{}.gz'. Without this option, the standard output is the result
    #[arg(long = "out", value_name = "FILE", requires = "map")]
    outputs: Vec<String>,
}

/// The result of the command of a value.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) value: String,
    pub(crate) failure: Option<String>,
    /// The standard output, if it is the result.
    pub(crate) output: String,
}

impl Map {
    pub(crate) fn is_selected(&self) -> bool {
        self.is_selected
    }

    /// Plans the commands in a folder.
    pub(crate) fn plan(&self, command: &str, folder: &Path) -> Result<Plan, String> {
        let values = self.values()?;
        if values.is_empty() {
            return Err("there are no values: add them after the command, or use --lines".to_owned());
        }
        if values.len() > COMBINATIONS_MAX {
            return Err(format!(
                "there are {} values, and at most {COMBINATIONS_MAX} are possible",
                values.len()
            ));
        }
        let template = if has_place(command) { command.to_owned() } else { format!("{command} {{}}") };
        let mut size = Size::default();
        let steps = values.iter().map(|value| {
            let step = self.step(&template, value, folder)?;
            size.add(&step).map(|()| step)
        });
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let prints = self.outputs.is_empty();
        if !prints {
            check_outputs(&steps)?;
        }
        let options = Options::default();
        let kind = Kind { name: "map".to_owned(), options, is_temporary: prints, prints };
        let levels = vec![steps.len()];
        Ok(Plan { shell: job_file::words(job_file::SHELL), kinds: vec![kind], steps, levels })
    }

    fn values(&self) -> Result<Vec<String>, String> {
        let mut values = self.values.clone();
        if let Some(path) = &self.lines {
            let text = if path == Path::new("-") {
                io::read_to_string(io::stdin())
            } else {
                fs::read_to_string(path)
            };
            let text =
                text.map_err(|error| format!("--lines {}: it cannot be read: {error}", path.display()))?;
            values.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_owned));
        }
        Ok(values)
    }

    fn step(&self, template: &str, value: &str, folder: &Path) -> Result<Step, String> {
        let path = value.trim_start_matches("./");
        let is_input = Path::new(path).is_relative() && folder.join(path).is_file();
        let value = if is_input { path } else { value };
        let mut inputs = self.inputs.clone();
        inputs.extend(is_input.then(|| value.to_owned()));
        let mut seen = HashSet::new();
        inputs.retain(|input| seen.insert(input.clone()));
        for input in &inputs {
            check_path(input).map_err(|why| format!("{input:?} cannot be an input: {why}"))?;
            if !folder.join(input).is_file() {
                return Err(format!(
                    "{input:?} cannot be an input: it is not a file in {}",
                    folder.display()
                ));
            }
        }
        let as_word = |text: &str| if is_input { quoted(&[text.to_owned()]) } else { word(text) };
        let command = filled(template, value, as_word);
        if command.len() > COMMAND_BYTES_MAX || command.contains('\0') {
            let reason = format!("it contains NUL, or has more than {COMMAND_BYTES_MAX} bytes");
            return Err(format!(
                "the command of the value {:?} is impossible: {reason}",
                one_line(value, VALUE_CHARS_MAX)
            ));
        }
        let outputs = self.outputs.iter().map(|output| {
            let path = filled(output, value, str::to_owned);
            let path = path.trim_start_matches("./").to_owned();
            let why = check_path(&path).err();
            why.map_or_else(|| Ok(path.clone()), |why| Err(format!("{path:?} cannot be an output: {why}")))
        });
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        if outputs.is_empty() {
            // No input has a name in this folder.
            outputs.push(format!("{FOLDER}/stdout"));
        }
        Ok(Step { kind: 0, label: value.to_owned(), command, inputs, outputs })
    }
}

/// Refuses outputs that two commands write, or that are inputs.
fn check_outputs(steps: &[Step]) -> Result<(), String> {
    let inputs: HashSet<_> = steps.iter().flat_map(|step| &step.inputs).collect();
    let mut seen = HashSet::new();
    for path in steps.iter().flat_map(|step| &step.outputs) {
        if inputs.contains(path) {
            return Err(format!("{path:?} is an input and an output: use another name in --out"));
        }
        if !seen.insert(path) {
            return Err(format!("two commands write {path:?}: use {{}} in each --out, and each value once"));
        }
    }
    Ok(())
}

/// Returns the place for a value at the start of a text, with a part of the value.
fn place<'a>(text: &str, value: &'a str) -> Option<(usize, &'a str)> {
    let name = value.rsplit('/').next().unwrap_or(value);
    let ending = name.rfind('.').filter(|at| *at > 0).map_or(0, |at| name.len() - at);
    let parts = [
        ("{}", value),
        ("{.}", &value[..value.len() - ending]),
        ("{/}", name),
        ("{/.}", &name[..name.len() - ending]),
    ];
    parts.into_iter().find(|(place, _)| text.starts_with(place)).map(|(place, part)| (place.len(), part))
}

fn has_place(template: &str) -> bool {
    template.match_indices('{').any(|(at, _)| place(&template[at..], "").is_some())
}

/// Replaces the places of a template by parts of a value.
fn filled(template: &str, value: &str, shown: impl Fn(&str) -> String) -> String {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some(at) = rest.find('{') {
        filled += &rest[..at];
        rest = &rest[at..];
        if let Some((length, part)) = place(rest, value) {
            filled += &shown(part);
            rest = &rest[length..];
        } else {
            filled.push('{');
            rest = &rest[1..];
        }
    }
    filled + rest
}

/// Returns a text without control characters, shortened.
fn one_line(text: &str, chars_max: usize) -> String {
    let text: Vec<_> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() <= chars_max {
        return text.into_iter().collect();
    }
    text[..chars_max - 1].iter().chain(&['…']).collect()
}

/// Returns a table of the results.
pub(crate) fn table(rows: &[Row]) -> String {
    let rows: Vec<_> = rows.iter().map(|row| (one_line(&row.value, VALUE_CHARS_MAX), row)).collect();
    let width = rows.iter().map(|(value, _)| value.chars().count()).max().unwrap_or(0);
    let lines = rows.iter().map(|(value, row)| {
        let (state, text) = match &row.failure {
            // The last line of the output, or the status if there is none.
            Some(failure) => {
                let last = failure.trim_end().lines().next_back();
                ("failed", last.and_then(|last| last.rsplit("` has failed: ").next()))
            }
            None => ("done", row.output.lines().next()),
        };
        let text = one_line(text.unwrap_or_default(), RESULT_CHARS_MAX);
        format!("{value:width$}  {state:6}  {text}").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(values: &[&str], outputs: &[&str]) -> Map {
        let [values, outputs] =
            [values, outputs].map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        Map { is_selected: true, values, lines: None, inputs: Vec::new(), outputs }
    }

    #[test]
    fn places_are_parts_of_the_value_as_words() {
        let filled = |value: &str| filled("x {} {.} {/} {/.} {other} {", value, word);
        assert_eq!(filled("a/b.tar.gz"), "x a/b.tar.gz a/b.tar b.tar.gz b.tar {other} {");
        assert_eq!(filled(".x"), "x .x .x .x .x {other} {");
        assert_eq!(filled("-1 it's"), "x '-1 it'\\''s' '-1 it'\\''s' '-1 it'\\''s' '-1 it'\\''s' {other} {");
        assert_eq!(filled("{/}"), "x '{/}' '{/}' '}' '}' {other} {");
        assert_eq!(filled(""), "x '' '' '' '' {other} {");
    }

    #[test]
    fn files_among_the_values_are_inputs() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("-a.txt"), "").unwrap();
        let values = ["./-a.txt", "-b", "./-c", ".//etc/passwd", "/etc/passwd"];
        let plan = map(&values, &[]).plan("wc", folder.path()).unwrap();
        let commands: Vec<_> = plan.steps.iter().map(|step| (&*step.command, step.inputs.len())).collect();
        let expected = [
            ("wc ./-a.txt", 1),
            ("wc -b", 0),
            ("wc ./-c", 0),
            ("wc .//etc/passwd", 0),
            ("wc /etc/passwd", 0),
        ];
        assert_eq!(commands, expected);
        let plan = map(&["./-c"], &["{}.gz"]).plan("wc", folder.path()).unwrap();
        assert_eq!(plan.steps[0].outputs, ["-c.gz"]);
    }

    #[test]
    fn file_that_is_an_input_and_a_value_is_one_input() {
        let folder = tempfile::tempdir().unwrap();
        let inputs = ["a", "b"].map(str::to_owned).to_vec();
        for name in &inputs {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let plan = Map { inputs, ..map(&["a"], &[]) }.plan("cat", folder.path()).unwrap();
        assert_eq!(plan.steps[0].inputs, ["a", "b"]);
    }

    #[test]
    fn impossible_values_and_outputs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().join("job");
        fs::create_dir(&job).unwrap();
        fs::write(job.join("a"), "").unwrap();
        fs::write(folder.path().join("up"), "").unwrap();
        let long = "x".repeat(COMMAND_BYTES_MAX);
        for (values, outputs, expected) in [
            (&[][..], &[][..], "there are no values"),
            (&["../up"], &[], "\"../up\" cannot be an input: a path is relative"),
            (&["a", "b"], &["out"], "two commands write \"out\": use {}"),
            (&["a", "b"], &["{}"], "\"a\" is an input and an output"),
            (&["x/../y"], &["{}"], "\"x/../y\" cannot be an output"),
            (&[".flow/lock"], &["{}"], "\".flow/lock\" cannot be an output: this folder"),
            (&[&long], &[], "has more than 120000 bytes"),
            (&["a\0b"], &[], "it contains NUL"),
        ] {
            let error = map(values, outputs).plan("true", &job).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
