//! The files of the pages, embedded in the command.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::single;

/// An embedded file.
#[derive(Clone, Copy)]
struct Asset {
    name: &'static str,
    content: &'static [u8],
}

macro_rules! assets {
    ($($name:literal),* $(,)?) => {
        &[$(Asset { name: $name, content: include_bytes!(concat!("assets/", $name)) }),*]
    };
}

/// All files of the folder except for the sign-in form.
const ASSETS: &[Asset] = assets![
    "actions.js",
    "charts.js",
    "costs.js",
    "data.js",
    "documents.js",
    "dom.js",
    "icon.svg",
    "index.html",
    "job.js",
    "main.js",
    "model.js",
    "pages.js",
    "parts.js",
    "save.js",
    "style.css",
    "text.js",
    "theme.js",
    "workers.js",
];

/// The sign-in form.
pub(super) const SIGN_IN_PAGE: &str = include_str!("assets/sign-in.html");

/// The script of the pages: all modules concatenated, so that a browser sends one request instead of a dozen.
const SCRIPT: &str = "app.js";
static SCRIPT_TEXT: LazyLock<String> = LazyLock::new(single::script_of_pages);

/// The served files and the script, each with its entity tag.
static SERVED: LazyLock<Vec<(Asset, HeaderValue)>> = LazyLock::new(|| {
    let script = Asset { name: SCRIPT, content: SCRIPT_TEXT.as_bytes() };
    let tagged = |asset: Asset| {
        // Weak, because the file is sent compressed or not.
        let tag = format!("W/\"{}\"", &blake3::hash(asset.content).to_hex()[..16]);
        (asset, HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("W/\"\"")))
    };
    ASSETS.iter().copied().chain([script]).map(tagged).collect()
});

/// Returns a text file.
pub(super) fn text(name: &str) -> Option<&'static str> {
    let asset = ASSETS.iter().find(|asset| asset.name == name)?;
    str::from_utf8(asset.content).ok()
}

/// Serves the start page.
pub(super) async fn index(headers: HeaderMap) -> Response {
    serve("index.html", &headers)
}

/// Serves a file by its name.
pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&name, &headers)
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    let Some((asset, tag)) = SERVED.iter().find(|(asset, _)| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "there is no such page\n").into_response();
    };
    // Browsers must revalidate: the next release has other files under the same names.
    let about = [(header::ETAG, tag.clone()), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    if known.is_some_and(|tags| tags.split(',').any(|known| known.trim().as_bytes() == tag.as_bytes())) {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)))];
    (about, kind, asset.content).into_response()
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path};

    use super::*;

    #[test]
    fn every_file_of_folder_is_served() {
        let folder = path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/web/assets");
        let files: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        let served = ASSETS.iter().map(|asset| asset.name).chain(["sign-in.html"]).map(str::to_owned);
        assert_eq!(served.collect::<BTreeSet<_>>(), files);
        assert!(ASSETS.iter().all(|asset| kind(asset.name) != "application/octet-stream"));
    }

    #[test]
    fn index_loads_all_modules_as_one_script() {
        let index = text("index.html").unwrap();
        assert_eq!(index.matches(".js\"").count(), 2, "the theme and the script");
        assert!(index.contains("<script type=\"module\" src=\"app.js\"></script>"));
        assert!(ASSETS.iter().all(|asset| asset.name != SCRIPT));
        let is_script = |name: &str| path::Path::new(name).extension().is_some_and(|end| end == "js");
        for asset in ASSETS.iter().filter(|asset| is_script(asset.name) && asset.name != "theme.js") {
            let module = String::from_utf8_lossy(asset.content);
            let line = module.lines().find(|line| line.contains("function ")).unwrap();
            let line = line.strip_prefix("export ").unwrap_or(line);
            assert!(SCRIPT_TEXT.lines().any(|own| own == line), "{}", asset.name);
        }
    }

    #[test]
    fn pages_have_no_inline_script_or_style() {
        for asset in ASSETS.iter().filter(|asset| kind(asset.name).starts_with("text/html")) {
            let page = String::from_utf8_lossy(asset.content);
            for refused in ["<style", "style=", "onclick=", "onload=", "javascript:", "http://", "https://"] {
                assert!(!page.contains(refused), "{}: {refused}", asset.name);
            }
            assert!(page.matches("<script").count() == page.matches("<script ").count(), "{}", asset.name);
        }
    }
}
