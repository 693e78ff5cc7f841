//! A check of pictures from other processes.

/// The elements that a picture may have. The others run code, load documents or repeat content without a limit.
const ELEMENTS: [&str; 18] = [
    "svg",
    "g",
    "defs",
    "title",
    "desc",
    "marker",
    "path",
    "rect",
    "circle",
    "ellipse",
    "line",
    "polyline",
    "polygon",
    "text",
    "tspan",
    "linearGradient",
    "radialGradient",
    "stop",
];

/// Returns whether a picture consists of shapes and texts: it runs no code and refers to no other document.
pub(super) fn is_inert(svg: &str) -> bool {
    // In another encoding, which a control character or the declaration selects, quotation marks may be elsewhere.
    if svg.chars().any(|c| c.is_control() && !c.is_ascii_whitespace()) {
        return false;
    }
    let mut rest = svg.trim_start();
    if let Some(declared) = rest.strip_prefix("<?xml ") {
        let Some((declared, after)) = declared.split_once("?>") else { return false };
        let declared = declared.to_ascii_lowercase();
        if declared.contains("encoding") && !declared.contains("\"utf-8\"") && !declared.contains("'utf-8'") {
            return false;
        }
        rest = after.trim_start();
    }
    let is_picture = rest.starts_with("<svg");
    while let Some((_, tag)) = rest.split_once('<') {
        let after = match tag.strip_prefix('/') {
            Some(end) => end.split_once('>').map(|(_, rest)| rest),
            None => after_element(tag),
        };
        let Some(after) = after else { return false };
        rest = after;
    }
    is_picture
}

/// Returns the text after the start tag of an element; `None` if that is not allowed.
fn after_element(tag: &str) -> Option<&str> {
    let end = tag.find(|c: char| !c.is_ascii_alphanumeric())?;
    let (name, mut rest) = tag.split_at(end);
    if !ELEMENTS.contains(&name) {
        return None;
    }
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>').or_else(|| rest.strip_prefix("/>")) {
            return Some(after);
        }
        let (name, value) = rest.split_once('=')?;
        let value = value.trim_start();
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let (value, after) = value[1..].split_once(quote)?;
        if !is_allowed(name.trim_end(), value) {
            return None;
        }
        rest = after;
    }
}

/// Escapes a text for XML, without characters that XML does not allow.
pub fn xml_escaped(text: &str) -> String {
    let is_allowed = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let text: String = text.chars().map(|c| if is_allowed(c) { c } else { ' ' }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns whether an attribute neither runs code nor refers to another document, also if it is written with escapes.
fn is_allowed(name: &str, value: &str) -> bool {
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '_'));
    let (name, value) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
    let refers = value.replace("url(#", "").contains("url(")
        || ["&#", "image-set(", "src("].iter().any(|part| value.contains(part))
        || value.contains(['\\', '<', '@']);
    is_name && !name.starts_with("on") && !name.ends_with("href") && !refers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_texts_are_allowed() {
        for inner in [
            "",
            "<g><title>a &lt; b &amp; c</title><rect x='1' fill=\"#fff\"/></g>",
            "<path d = \"M0,0\" marker-end=\"url(#tip)\" ></path>",
            "<text font-size=\"12\">onload=javascript:</text>",
        ] {
            assert!(
                is_inert(&format!("<svg xmlns=\"http://www.w3.org/2000/svg\">{inner}</svg>\n")),
                "{inner}"
            );
        }
        for head in ["<?xml version=\"1.0\"?>\n", "<?xml version='1.0' encoding='UTF-8'?>"] {
            assert!(is_inert(&format!("{head}<svg/>")), "{head}");
        }
    }

    #[test]
    fn code_and_links_are_refused() {
        for inner in [
            "<script>alert(1)</script>",
            "<SCRIPT>alert(1)</SCRIPT>",
            "<rect onclick=\"alert(1)\"/>",
            "<rect ONLOAD='alert(1)'/>",
            "<rect x=\"1\"onload=\"alert(1)\"/>",
            "<a href=\"javascript:alert(1)\">x</a>",
            "<image xlink:href=\"http://x/y.png\"/>",
            "<use href=\"#a\"/>",
            "<foreignObject/>",
            "<style>@import 'x'</style>",
            "<rect fill=\"url(http://x)\"/>",
            "<rect style=\"background: image-set('http://x' 1x)\"/>",
            "<text>\u{1b}$B</text>",
            "<rect style=\"fill: \\75rl(http://x)\"/>",
            "<rect style=\"fill: &#117;rl(http://x)\"/>",
            "<!-- comment --><script/>",
            "<![CDATA[<script/>]]>",
            "<rect x=1/>",
            "<rect",
            "<rect x=\"1",
            "<",
        ] {
            assert!(!is_inert(&format!("<svg>{inner}</svg>")), "{inner}");
        }
        for whole in [
            "",
            "text",
            "<html/>",
            "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>",
            "<?xml version='1.0'",
            "<?xml version='1.0' encoding='ISO-2022-JP'?><svg/>",
        ] {
            assert!(!is_inert(whole), "{whole}");
        }
    }
}
