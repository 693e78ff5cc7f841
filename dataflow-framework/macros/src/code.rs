//! The hash of the code of a task, by which the cache of results detects that the task was edited.

use proc_macro2::{Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Attribute, Block, Signature};

/// Returns the hash of a function in a version, in hexadecimal digits. White space, comments and documentation do not matter.
///
/// The names of the parameters do: if two are exchanged, the same body computes something else.
pub(crate) fn hash(version: &str, attributes: &[Attribute], signature: &Signature, body: &Block) -> String {
    let attributes = attributes.iter().filter(|attribute| !attribute.path().is_ident("doc"));
    let mut hasher = blake3::Hasher::new();
    add(quote!(#version #(#attributes)* #signature), &mut hasher);
    add(body.to_token_stream(), &mut hasher);
    hasher.finalize().to_string()
}

/// Adds tokens, each with its kind and its end: the text of a stream depends on the compiler.
fn add(tokens: TokenStream, to: &mut blake3::Hasher) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                to.update(format!("({:?}", group.delimiter()).as_bytes());
                add(group.stream(), to);
                to.update(b")");
            }
            TokenTree::Ident(ident) => {
                to.update(format!("i{ident} ").as_bytes());
            }
            TokenTree::Punct(punct) => {
                let end = if punct.spacing() == Spacing::Joint { "" } else { " " };
                to.update(format!("p{}{end}", punct.as_char()).as_bytes());
            }
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                to.update(format!("l{} {text}", text.len()).as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use syn::ItemFn;

    fn hash(text: &str) -> String {
        let function: ItemFn = syn::parse_str(text).expect("it is a function");
        super::hash("", &function.attrs, &function.sig, &function.block)
    }

    #[test]
    fn hash_of_code_ignores_layout_and_comments() {
        let one = hash("/// Subtracts.\nfn task(a: u64, b: u64) -> u64 { a - b && c }");
        assert_eq!(one, hash("fn task(a: u64,b: u64)->u64{\n// difference\na-b&&c\n}"));
        assert_eq!(one.len(), 64);
    }

    #[test]
    fn hash_of_code_differs_for_each_edit() {
        let texts = [
            "fn task(a: u64, b: u64) -> u64 { a - b }",
            "fn task(b: u64, a: u64) -> u64 { a - b }",
            "fn task(a: u64, b: u64) -> u64 { a - (b) }",
            "fn task(a: u64, b: u64) -> u64 { b - a }",
            "fn task(a: u64, b: u64) -> u32 { a - b }",
            "fn task(a: u64, b: u64) -> u64 { a && b }",
            "fn task(a: u64, b: u64) -> u64 { a & &b }",
            "fn task(a: u64, b: u64) -> u64 { \"a b\" }",
            "fn task(a: u64, b: u64) -> u64 { \"a  b\" }",
            "#[cold] fn task(a: u64, b: u64) -> u64 { a - b }",
        ];
        let mut hashes: std::collections::BTreeSet<_> = texts.iter().map(|text| hash(text)).collect();
        let function: ItemFn = syn::parse_str(texts[0]).expect("it is a function");
        hashes.insert(super::hash("v2", &function.attrs, &function.sig, &function.block));
        assert_eq!(hashes.len(), texts.len() + 1);
    }
}
