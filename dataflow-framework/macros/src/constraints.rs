//! The requirements of a task on its node: `cores = 4, memory = "2 GiB", needs("blast", "os=linux"),
//! limits("licence=2")`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Error, Expr, ExprLit, Lit, LitStr, Result, Token, parenthesized, parse::ParseStream,
    punctuated::Punctuated,
};

/// The units of sizes, in bytes.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The maximum length of the name or the value of a label, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Parses a number of workers.
pub(crate) fn cores(input: ParseStream<'_>) -> Result<TokenStream> {
    let cores: Expr = input.parse()?;
    if let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = &cores
        && number.base10_parse::<u32>()? == 0
    {
        return Err(Error::new(number.span(), "a call takes at least one worker"));
    }
    Ok(cores.into_token_stream())
}

/// Parses a size, such as `"2 GiB"`, or an expression of a number of bytes.
pub(crate) fn memory(input: ParseStream<'_>) -> Result<TokenStream> {
    if !input.peek(LitStr) {
        return Ok(input.parse::<Expr>()?.into_token_stream());
    }
    let text: LitStr = input.parse()?;
    let bytes = size(&text.value()).ok_or_else(|| {
        let message = format!("{:?} is no size such as \"2 GiB\" or \"500 MB\"", text.value());
        Error::new(text.span(), message)
    })?;
    Ok(quote!(#bytes))
}

fn size(text: &str) -> Option<u64> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// Parses labels in parentheses.
pub(crate) fn labels(input: ParseStream<'_>) -> Result<TokenStream> {
    let what = "label: expected a name, or name=value, of letters, digits, - _ . and /";
    texts(input, is_label, "needs names at least one label, such as needs(\"blast\")", what)
}

/// Parses limits in parentheses.
pub(crate) fn limits(input: ParseStream<'_>) -> Result<TokenStream> {
    let what = "limit: expected NAME=CALLS, such as \"licence=2\"";
    texts(input, is_limit, "limits names at least one limit, such as limits(\"licence=2\")", what)
}

/// Parses texts in parentheses.
fn texts(
    input: ParseStream<'_>,
    is_valid: fn(&str) -> bool,
    missing: &str,
    expected: &str,
) -> Result<TokenStream> {
    let within;
    let parentheses = parenthesized!(within in input);
    let texts = Punctuated::<LitStr, Token![,]>::parse_terminated(&within)?;
    if texts.is_empty() {
        return Err(Error::new(parentheses.span.join(), missing));
    }
    if let Some(wrong) = texts.iter().find(|text| !is_valid(&text.value())) {
        return Err(Error::new(wrong.span(), format!("{:?} is no {expected}", wrong.value())));
    }
    Ok(quote!(&[#texts]))
}

/// Returns whether a text is a limit, by the rules of `dataflow_framework`.
fn is_limit(text: &str) -> bool {
    let calls = text.split_once('=').filter(|(name, _)| !name.is_empty()).map(|(_, calls)| calls);
    calls.and_then(|calls| calls.parse::<i64>().ok()).is_some_and(|calls| calls > 0)
}

/// Returns whether a node can have a label. `zk::Labels` has the same rules.
fn is_label(text: &str) -> bool {
    let is_word = |word: &str| {
        (1..=LABEL_BYTES_MAX).contains(&word.len())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
    };
    text.split_once('=').map_or_else(|| is_word(text), |(name, value)| is_word(name) && is_word(value))
}

#[cfg(test)]
mod tests {
    use super::{is_label, size};

    #[test]
    fn memory_size_requires_unit() {
        assert_eq!(size("2 GiB"), Some(2 << 30));
        assert_eq!(size("500MB"), Some(500_000_000));
        for wrong in ["", "2", "GiB", "2 gib", "1.5 GiB", "20000000 TiB", "-1 B"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn labels_have_form_of_node_labels() {
        for label in ["blast", "os=linux", "example.org/gpu=a-100"] {
            assert!(is_label(label), "{label}");
        }
        for wrong in ["", "=", "a=", "=b", "a=b=c", "a,b", &"x".repeat(64)] {
            assert!(!is_label(wrong), "{wrong}");
        }
    }
}
