//! A page as one file: it contains its scripts, style and data, so that a browser shows it without a server or network.
//!
//! Its content security policy allows only the embedded script and style, by their hashes. Data is embedded as JSON, in
//! which no text can close the element.

use std::{collections::BTreeSet, fmt::Write as _};

use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::assets;

/// The template of the file, with placeholders in braces.
const FRAME: &str = include_str!("single.html");

/// A page as one file.
pub(crate) struct Single<'a> {
    /// Its title, a text.
    pub(crate) title: &'a str,
    /// The name of the first page, a text.
    pub(crate) first: &'a str,
    /// An additional module that the dashboard does not have: its name and its text.
    pub(crate) more: Option<(&'a str, &'a str)>,
    /// The data, in the form that `data.js` reads.
    pub(crate) data: &'a Value,
}

impl Single<'_> {
    /// Returns the file. Equal pages are equal byte for byte.
    pub(crate) fn html(&self) -> String {
        let (style, theme) = (text("style.css"), text("theme.js"));
        let script = self.script();
        let icon = format!("data:image/svg+xml;base64,{}", base64(text("icon.svg").as_bytes()));
        let policy = format!(
            "default-src 'none'; script-src {} {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
            hash(theme),
            hash(&script),
            hash(style)
        );
        let parts = [
            ("policy", policy.as_str()),
            ("title", &escaped(self.title)),
            ("icon", &icon),
            ("style", style),
            ("theme", theme),
            ("nav", &escaped(self.first)),
            ("data", &embedded(self.data)),
            ("script", &script),
        ];
        filled(FRAME, &parts)
    }

    /// Returns all modules as one script: each after its imports, without `import` and `export`.
    fn script(&self) -> String {
        let mut modules = Modules { more: self.more, known: BTreeSet::new(), script: String::new() };
        for name in self.more.map(|(name, _)| name).into_iter().chain(["main.js"]) {
            modules.add(name);
        }
        modules.script
    }

    /// Returns the names that two modules define at the top level: the script would be invalid.
    #[cfg(test)]
    pub(crate) fn names_twice(&self) -> Vec<String> {
        let script = self.script();
        let mut known = BTreeSet::new();
        names(&script).into_iter().filter(|name| !known.insert(*name)).map(str::to_owned).collect()
    }
}

/// Concatenates modules.
struct Modules<'a> {
    more: Option<(&'a str, &'a str)>,
    known: BTreeSet<String>,
    script: String,
}

impl Modules<'_> {
    fn add(&mut self, name: &str) {
        if !self.known.insert(name.to_owned()) {
            return;
        }
        let text = self.more.filter(|(more, _)| *more == name).map_or_else(|| text(name), |(_, text)| text);
        for line in text.lines() {
            if let Some(imported) = imported(line) {
                self.add(imported);
            }
        }
        for line in text.lines().filter(|line| imported(line).is_none()) {
            self.script += line.strip_prefix("export ").unwrap_or(line);
            self.script.push('\n');
        }
    }
}

/// Returns all modules of the pages as one script, so that a browser sends one request.
pub(super) fn script_of_pages() -> String {
    Single { title: "", first: "", more: None, data: &Value::Null }.script()
}

/// Returns the module that a line imports, if it is an import. Each import must be one line.
fn imported(line: &str) -> Option<&str> {
    let (_, from) = line.strip_prefix("import ")?.split_once("from \"./")?;
    from.strip_suffix("\";")
}

/// Returns the text of a file of the pages.
fn text(name: &str) -> &'static str {
    assets::text(name).unwrap_or_default()
}

/// Replaces the placeholders of a template. The inserted parts are not scanned for placeholders.
fn filled(frame: &str, parts: &[(&str, &str)]) -> String {
    let mut page = String::new();
    let mut rest = frame;
    while let Some((before, after)) = rest.split_once('{') {
        page += before;
        let known = after.split_once('}').and_then(|(name, after)| {
            let (_, part) = parts.iter().find(|(known, _)| *known == name)?;
            Some((*part, after))
        });
        let (next, after) = known.unwrap_or(("{", after));
        page += next;
        rest = after;
    }
    page + rest
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns JSON for a script element: no text in it can close the element or break a line.
fn embedded(value: &Value) -> String {
    // In JSON these characters occur only within strings.
    let mut json = String::new();
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing into a string cannot fail.
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            other => json.push(other),
        }
    }
    json
}

/// Returns the name of a script or style in the content security policy.
fn hash(content: &str) -> String {
    format!("'sha256-{}'", base64(digest(&SHA256, content.as_bytes()).as_ref()))
}

/// Returns bytes in Base64, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = move |at: usize| char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
        let there = three.len();
        (0..4).map(move |at| if at <= there { digit(at) } else { '=' })
    };
    bytes.chunks(3).flat_map(group).collect()
}

/// Returns the names that a module defines at the top level.
#[cfg(test)]
fn names(script: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for line in script.lines() {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let kinds = ["const ", "let ", "var ", "function ", "class "];
        let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
        let end = if rest.starts_with(['[', '{']) { rest.find('=') } else { rest.find(['=', '(', ' ', ';']) };
        let declared = &rest[..end.unwrap_or(rest.len())];
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        names.extend(declared.split(|c| !is_name(c)).filter(|name| !name.is_empty()));
        names.extend(
            further(&rest[declared.len()..]).map(|text| text.split(|c| !is_name(c)).next().unwrap_or("")),
        );
    }
    names
}

/// Returns the text after each comma outside of brackets and strings: the starts of further declarations.
#[cfg(test)]
fn further(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut quote) = (0_u32, None);
    text.char_indices().filter_map(move |(at, c)| {
        match (quote, c) {
            (Some(begun), _) if begun == c => quote = None,
            (None, '"' | '\'' | '`') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => return Some(text[at + 1..].trim_start()),
            (Some(_) | None, _) => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(title: &str, data: &Value) -> String {
        Single { title, first: "The job", more: None, data }.html()
    }

    /// Returns the text between two texts, each of which occurs once.
    fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
        let (_, rest) = page.split_once(from).unwrap();
        rest.split_once(to).unwrap().0
    }

    #[test]
    fn embedded_content_cannot_leave_its_element() {
        let hostile = "</script><!--<script>\u{2028}\u{2029}</title>&lt;\"{script}{data}{title}";
        let data = json!({ "name": hostile, hostile: [hostile] });
        let page = page(hostile, &data);
        let held = between(&page, "<script type=\"application/json\" id=\"data\">", "</script>");
        assert_eq!(serde_json::from_str::<Value>(held).unwrap(), data);
        assert!(!held.contains(['<', '>', '&', '\u{2028}', '\u{2029}']));
        let title = between(&page, "<title>", "</title>");
        assert!(title.starts_with("&lt;/script&gt;&lt;!--") && !title.contains('<'), "{title}");
        // The theme's script, the data, the script; each is closed once.
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (3, 3));
        assert_eq!((page.matches("<style").count(), page.matches("</style").count()), (1, 1));
    }

    #[test]
    fn policy_allows_embedded_content_only() {
        let page = page("Job", &json!({}));
        let policy = between(&page, "Content-Security-Policy\" content=\"", "\"");
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        for part in [
            between(&page, "<style>", "</style>"),
            between(&page, "<script>", "</script>"),
            between(&page, "<script type=\"module\">", "</script>"),
        ] {
            assert!(part.len() > 100 && policy.contains(&hash(part)), "{policy}");
        }
        for address in ["http://", "https://", "src=\"/", "url(", "@import", "import("] {
            // The namespace of SVG is not loaded.
            let page = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(address), "{address}");
        }
        let loaded = page.match_indices("src=\"").chain(page.match_indices("<link rel=\"icon\" href=\""));
        for (at, name) in loaded {
            assert!(page[at + name.len()..].starts_with("data:"), "{}", &page[at..at + 60]);
        }
    }

    #[test]
    fn hash_matches_standard_examples() {
        assert_eq!(hash(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn modules_form_one_script() {
        let data = json!({});
        let single = Single { title: "", first: "", more: None, data: &data };
        let script = single.script();
        for line in script.lines() {
            let is_of_a_module = line.starts_with("import") || line.starts_with("export");
            assert!(!is_of_a_module, "an import is one line, and so is what it leaves: {line}");
        }
        let names = names(&script);
        assert!(names.contains(&"jobPage") && names.contains(&"chosen") && names.contains(&"isFirst"));
        assert!(names.contains(&"HOUR") && names.contains(&"WAITS"), "several in one line");
        assert_eq!(single.names_twice(), Vec::<String>::new());
        // Definitions precede their use at load time.
        let place = |text: &str| script.find(text).unwrap();
        assert!(
            place("function patch(") < place("function chart(")
                && place("function chart(") < place("function jobPage(")
        );
        assert!(place("function jobPage(") < place("function drawPage("));
    }

    #[test]
    fn additional_module_precedes_start() {
        let more = "import { chart } from \"./charts.js\";\nexport const further = () => chart;\n";
        let data = json!({});
        let script = Single { title: "", first: "", more: Some(("further.js", more)), data: &data }.script();
        let place = |text: &str| script.find(text).unwrap();
        assert!(
            place("function chart(") < place("const further")
                && place("const further") < place("function drawPage(")
        );
        assert_eq!(script.matches("function chart(").count(), 1);
    }
}
