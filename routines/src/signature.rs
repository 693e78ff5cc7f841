//! Signatures of routines: their parameters and results, with JSON Schemas (draft 2020-12).
//!
//! A schema sees numbers: `{"$i": …}`, an integer, and `{"$f": …}`, an infinity, which is the largest double. NaN is no number.
//! A resource, `{"$resource": …}`, is a string. An array, `{"$a": …}`, is a list, or a list of lists for each dimension.

mod plain;

use jsonschema::{Draft, PatternOptions, Validator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::plain::to_plain;
use crate::space::Space;

/// The maximum number of parameters.
const PARAMETERS_MAX: usize = 100;

/// The maximum number of `$ref` in a schema: each may double the time of a check.
const REFERENCES_MAX: usize = 32;

/// The maximum size of a compiled pattern, in bytes. Its time is linear in the text.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The maximum length of a shown reason, in characters: it contains the value.
const REASON_CHARS_MAX: usize = 300;

/// The keywords that make a schema depend on other documents.
const REFUSED: &[&str] = &["$schema", "$id", "$dynamicRef", "$recursiveRef"];

/// A JSON Schema without references to other documents.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Schema {
    text: Value,
    validator: Validator,
}

/// A parameter of a routine.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Declared")]
struct Parameter {
    name: String,
    schema: Schema,
    default: Option<Value>,
    is_required: bool,
}

/// A parameter in `routine.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    name: String,
    schema: Option<Schema>,
    /// The value without an argument, for readers: the function has it.
    default: Option<Value>,
    required: Option<bool>,
}

/// The parameters of a routine, in the order of positional arguments.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<Parameter>")]
pub(crate) struct Parameters(Vec<Parameter>);

impl TryFrom<Value> for Schema {
    type Error = String;

    fn try_from(text: Value) -> Result<Self, String> {
        check_references(&text, &mut 0)?;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
        let options = jsonschema::options().with_draft(Draft::Draft202012).with_pattern_options(patterns);
        let validator = options.build(&text).map_err(|error| {
            format!("the schema is invalid at {:?}: {}", error.instance_path().as_str(), short(&error))
        })?;
        Ok(Self { text, validator })
    }
}

/// Checks the keywords of a schema that refer to others.
fn check_references(schema: &Value, references: &mut usize) -> Result<(), String> {
    let Value::Object(fields) = schema else {
        let parts = schema.as_array().map_or(&[][..], Vec::as_slice);
        return parts.iter().try_for_each(|part| check_references(part, references));
    };
    if let Some(keyword) = REFUSED.iter().find(|keyword| fields.contains_key(**keyword)) {
        return Err(format!("a schema cannot have the keyword {keyword}: remove it"));
    }
    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
        *references += 1;
        if !reference.starts_with('#') {
            let remedy = "copy it to $defs, and refer to \"#/$defs/NAME\"";
            return Err(format!("the schema refers to another document, {reference:?}: {remedy}"));
        }
        if *references > REFERENCES_MAX {
            return Err(format!("the schema has more than {REFERENCES_MAX} references"));
        }
    }
    fields.values().try_for_each(|part| check_references(part, references))
}

impl Schema {
    /// # Errors
    /// The path in the value and the violated rule.
    fn check(&self, value: &Value) -> Result<(), (String, String)> {
        // The fast test remembers the results of recursive parts.
        if self.validator.is_valid(value) {
            return Ok(());
        }
        self.validator.validate(value).map_err(|error| {
            let path = error.instance_path().as_str().to_owned();
            (path, format!("{} (rule: {})", short(&error), error.kind().keyword()))
        })
    }

    /// Checks the result of a call, as JSON.
    ///
    /// # Errors
    /// The path in the result and the violated rule.
    pub(crate) fn check_result(&self, json: &str) -> Result<(), String> {
        self.check(&parse(json)?).map_err(|(path, reason)| format!("path {path:?}: {reason}"))
    }
}

impl TryFrom<Declared> for Parameter {
    type Error = String;

    fn try_from(declared: Declared) -> Result<Self, String> {
        let Declared { name, schema, default, required } = declared;
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(format!("name = {name:?} must have letters, digits and `_`"));
        }
        let schema = schema.map_or_else(|| Schema::try_from(json!({})), Ok)?;
        if let Some(mut value) = default.clone() {
            to_plain(&mut value);
            let of = |(path, reason)| format!("the default of parameter {name}, path {path:?}: {reason}");
            schema.check(&value).map_err(of)?;
        }
        let is_required = required.unwrap_or(default.is_none());
        if is_required && default.is_some() {
            return Err(format!("parameter {name} has a default, so it cannot be required"));
        }
        Ok(Self { name, schema, default, is_required })
    }
}

impl TryFrom<Vec<Parameter>> for Parameters {
    type Error = String;

    fn try_from(parameters: Vec<Parameter>) -> Result<Self, String> {
        if parameters.len() > PARAMETERS_MAX {
            return Err(format!("a routine has at most {PARAMETERS_MAX} parameters"));
        }
        for (place, Parameter { name, is_required, .. }) in parameters.iter().enumerate() {
            let earlier = &parameters[..place];
            if earlier.iter().any(|other| other.name == *name) {
                return Err(format!("parameter {name} is declared twice"));
            }
            if *is_required && earlier.iter().any(|other| !other.is_required) {
                return Err(format!(
                    "parameter {name} is required and follows an optional one: change the order"
                ));
            }
        }
        Ok(Self(parameters))
    }
}

impl Parameters {
    /// Checks the arguments of the calls of a job.
    ///
    /// # Errors
    /// The index of the first wrong argument, the path in it and the violated rule.
    pub(crate) fn check_space(&self, space: &Space) -> Result<(), String> {
        for index in space.samples() {
            let argument = space.argument(index)?;
            self.check(argument.get()).map_err(|reason| format!("argument {index}, {reason}"))?;
        }
        Ok(())
    }

    /// Checks the argument of a call, as JSON: a list has positional arguments, an object named ones, and any other value
    /// is the only argument.
    ///
    /// # Errors
    /// The path in the argument and the violated rule.
    pub(crate) fn check(&self, json: &str) -> Result<(), String> {
        match parse(json)? {
            Value::Array(values) => {
                if let Some(more) = values.get(self.0.len()) {
                    let (path, known) = (format!("/{}", self.0.len()), self.0.len());
                    return Err(format!(
                        "path {path:?}: {} follows {known} arguments (rule: parameters)",
                        short(more)
                    ));
                }
                let given = self.0.iter().zip(&values).enumerate();
                given
                    .map(|(at, of)| (format!("/{at}"), of))
                    .try_for_each(|(path, (parameter, value))| parameter.check(value, &path))?;
                self.check_missing(|at, _| at < values.len())
            }
            Value::Object(values) => {
                for (name, value) in &values {
                    let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
                    let parameter = self.0.iter().find(|parameter| parameter.name == *name);
                    let unknown = || format!("path {path:?}: there is no such parameter (rule: parameters)");
                    parameter.ok_or_else(unknown)?.check(value, &path)?;
                }
                self.check_missing(|_, name| values.contains_key(name))
            }
            value => {
                let first =
                    self.0.first().ok_or("path \"\": the routine has no parameters (rule: parameters)")?;
                first.check(&value, "")?;
                self.check_missing(|at, _| at == 0)
            }
        }
    }

    fn check_missing(&self, is_given: impl Fn(usize, &str) -> bool) -> Result<(), String> {
        let mut required = self.0.iter().enumerate().filter(|(_, parameter)| parameter.is_required);
        match required.find(|(at, parameter)| !is_given(*at, &parameter.name)) {
            Some((_, Parameter { name, .. })) => {
                Err(format!("path \"\": parameter {name} is missing (rule: required)"))
            }
            None => Ok(()),
        }
    }
}

impl Parameter {
    fn check(&self, value: &Value, at: &str) -> Result<(), String> {
        let name = &self.name;
        let wrong = |(path, reason)| format!("path {:?}, parameter {name}: {reason}", format!("{at}{path}"));
        self.schema.check(value).map_err(wrong)
    }
}

impl Serialize for Schema {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(to)
    }
}

impl Serialize for Parameters {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|Parameter { name, schema, default, is_required }| {
            let mut shown = json!({ "name": name, "schema": schema, "required": is_required });
            if let Some(default) = default {
                shown["default"] = default.clone();
            }
            shown
        }))
    }
}

fn parse(json: &str) -> Result<Value, String> {
    let mut value = serde_json::from_str(json).map_err(|error| format!("path \"\": {error} (rule: json)"))?;
    to_plain(&mut value);
    Ok(value)
}

/// Formats a text that may contain a large value.
fn short(text: &impl ToString) -> String {
    let text = text.to_string();
    match text.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::Description;

    const HEAD: &str = "name = 'pi'\nversion = '1'\nruntime = 'python3'\nentry = 'pi:run'\n";

    const PARAMETERS: &str = r##"
[[parameter]]
name = "part"
schema = { type = "integer", minimum = 0 }

[[parameter]]
name = "tree"
default = { leaves = [] }
[parameter.schema]
"$ref" = "#/$defs/tree"
[parameter.schema."$defs".tree]
type = "object"
required = ["leaves"]
properties.leaves = { type = "array", items = { anyOf = [{ type = "number" }, { "$ref" = "#/$defs/tree" }] } }
"##;

    fn described(more: &str) -> Result<Description, String> {
        toml::from_str(&format!("{HEAD}{more}")).map_err(|error: toml::de::Error| error.to_string())
    }

    #[test]
    fn arguments_are_positional_named_or_the_only_one() {
        let parameters = described(PARAMETERS).unwrap().parameters.unwrap();
        for valid in [
            "[0]",
            "7",
            r#"{"$i":"18446744073709551616"}"#,
            r#"{"part":1}"#,
            r#"[1,{"leaves":[1.5,{"leaves":[{"$f":"-inf"}]}]}]"#,
            r#"{"tree":{"leaves":[]},"part":3}"#,
            r#"[1,{"leaves":{"$a":{"dtype":"f32","shape":[2],"data":"AACAPwAAgH8="}}}]"#,
        ] {
            assert_eq!(parameters.check(valid), Ok(()), "{valid}");
        }
        for (wrong, path, rule) in [
            ("[-1]", "/0", "minimum"),
            ("\"x\"", "", "type"),
            ("[]", "", "required"),
            (r#"{"tree":{"leaves":[]}}"#, "", "required"),
            (r#"[1,{"leaves":[]},3]"#, "/2", "parameters"),
            (r#"{"part":1,"a/b":2}"#, "/a~1b", "parameters"),
            (r#"{"part":1,"tree":{}}"#, "/tree", "required"),
            (r#"[1,{"leaves":[1,{"leaves":["x"]}]}]"#, "/1/leaves/1", "anyOf"),
            (r#"[{"$f":"nan"}]"#, "/0", "type"),
            (r#"[1,{"leaves":{"$a":{"dtype":"u8","shape":[3],"data":"AAE="}}}]"#, "/1/leaves", "type"),
            (r#"[1,{"leaves":{"$a":{"dtype":"u8","shape":[1,2],"data":"AAE="}}}]"#, "/1/leaves/0", "anyOf"),
            (
                r#"[1,{"leaves":{"$a":{"dtype":"f32","shape":[1],"data":"AADAfw=="}}}]"#,
                "/1/leaves/0",
                "anyOf",
            ),
        ] {
            let reason = parameters.check(wrong).unwrap_err();
            assert!(reason.starts_with(&format!("path {path:?}")), "{wrong}: {reason}");
            assert!(reason.ends_with(&format!("(rule: {rule})")), "{wrong}: {reason}");
        }
        let path = "[[parameter]]\nname = 'table'\nschema = { type = 'string' }\n";
        let path = described(path).unwrap().parameters.unwrap();
        assert_eq!(path.check(r#"[{"$resource":"12"}]"#), Ok(()), "a resource is the path of a file");
        let none = described("parameter = []").unwrap().parameters.unwrap();
        assert!(none.check("[]").is_ok() && none.check("[1]").is_err() && none.check("1").is_err());
        assert!(described("").unwrap().parameters.is_none(), "then arguments are not checked");
    }

    #[test]
    fn job_is_refused_with_the_index_of_its_first_wrong_argument() {
        let parameters = described(PARAMETERS).unwrap().parameters.unwrap();
        let list = |values: &[&str]| Space::List(values.iter().map(|&value| value.to_owned()).collect());
        assert_eq!(parameters.check_space(&list(&["1", "[2]"])), Ok(()));
        let reason = parameters.check_space(&list(&["1", "[-2]", "[-3]"])).unwrap_err();
        assert!(reason.starts_with("argument 1, path \"/0\", parameter part: -2"), "{reason}");
        let range = |from, to| parameters.check_space(&Space::Range { from, to });
        assert_eq!(range(0, 1 << 40), Ok(()), "only the ends are checked");
        assert!(range(-1, 1 << 40).unwrap_err().starts_with("argument 0, "));
        assert_eq!(range(5, 5), Ok(()));
        let even = "[[parameter]]\nname = 'n'\nschema = { multipleOf = 2 }\n";
        let even = described(even).unwrap().parameters.unwrap();
        assert!(even.check_space(&Space::Range { from: 0, to: 5 }).unwrap_err().starts_with("argument 1, "));
    }

    #[test]
    fn invalid_signatures_are_refused_with_their_lines() {
        let parameter = |schema: &str| format!("[[parameter]]\nname = 'a'\nschema = {schema}\n");
        let many = "{ '$ref' = '#' },".repeat(REFERENCES_MAX + 1);
        for (more, reason, line) in [
            (parameter("{ type = 'int' }"), "/type", 7),
            (parameter("{ '$ref' = 'https://example.org/schema' }"), "another document", 7),
            (parameter("{ '$ref' = 'file:///etc/passwd' }"), "another document", 7),
            (parameter("{ '$ref' = '#/$defs/b' }"), "$defs", 7),
            (parameter("{ '$id' = 'https://example.org/' }"), "$id", 7),
            (parameter(&format!("{{ allOf = [{many}] }}")), "more than 32 references", 7),
            (parameter("{ pattern = '(a' }"), "pattern", 7),
            (parameter("{ type = 'integer' }\ndefault = 'x'"), "the default of parameter a", 5),
            (parameter("{}\ndefault = 1\nrequired = true"), "cannot be required", 5),
            (parameter("{}").repeat(2), "twice", 5),
            ("[[parameter]]\nname = 'a'\ndefault = 1\n[[parameter]]\nname = 'b'\n".to_owned(), "order", 5),
            ("[[parameter]]\nname = 'a b'\n".to_owned(), "letters", 5),
        ] {
            let text = described(&more).unwrap_err();
            assert!(text.contains(reason) && text.contains(&format!("at line {line},")), "{more}: {text}");
        }
    }

    #[test]
    fn recursion_without_progress_ends() {
        let own = described("[result]\nanyOf = [{ '$ref' = '#' }, { type = 'integer' }]\n").unwrap();
        let result = own.result.unwrap();
        assert_eq!(result.check_result("5"), Ok(()));
        assert_eq!(result.check_result("\"x\""), Ok(()), "a schema that is itself permits anything");
    }
}
