//! The attribute `program`: a function becomes a program with a table of tasks, arguments and a command line.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{
    Attribute, Error, Expr, FnArg, Ident, ItemFn, Lit, Meta, Pat, Path, Result, Signature, Token, Type,
    TypePath,
    parse::{Parse, ParseStream},
    parse_quote,
    punctuated::Punctuated,
    spanned::Spanned as _,
};

use crate::signature::{returned, ungrouped};

/// The tasks of a program.
pub(crate) struct Tasks(Punctuated<Path, Token![,]>);

impl Parse for Tasks {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let listed = Punctuated::<Path, Token![,]>::parse_terminated(input);
        listed.map(Self).map_err(|error| {
            Error::new(error.span(), "list the tasks of the program by name: #[program(align, merge)]")
        })
    }
}

/// A parameter of a program, which is an argument of its command.
struct Argument {
    name: Ident,
    of: Type,
    /// The attributes of its field, for clap.
    attributes: Vec<Attribute>,
}

/// Returns the function, and the program that runs it.
pub(crate) fn program(Tasks(tasks): &Tasks, mut function: ItemFn) -> Result<TokenStream> {
    check(&function.sig)?;
    let arguments = function.sig.inputs.iter_mut().map(Argument::take).collect::<Result<Vec<_>>>()?;
    let (output, may_fail) = returned(&function.sig.output);
    let (name, visible) = (&function.sig.ident, &function.vis);
    let names: Vec<_> = arguments.iter().map(|argument| &argument.name).collect();
    let types: Vec<_> = arguments.iter().map(|argument| &argument.of).collect();
    let fields = arguments.iter().map(|Argument { name, of, attributes }| quote!(#(#attributes)* #name: #of));
    // A parameter may have the name of the function.
    let values: Vec<_> = (0..names.len()).map(|number| format_ident!("argument_{number}")).collect();
    let call = quote!(#name(#(::core::clone::Clone::clone(#values)),*));
    let call = if may_fail {
        quote!(#call.map_err(::core::convert::Into::into))
    } else {
        quote!(::core::result::Result::Ok(#call))
    };
    let (title, about) = (name.to_string().replace('_', "-"), about(&function.attrs));
    let documented = format!("The program `{title}`.");
    let table = table(tasks);
    Ok(quote! {
        #[allow(clippy::needless_pass_by_value, reason = "a program owns its arguments")]
        #function

        #[doc = #documented]
        #[allow(non_camel_case_types, reason = "it has the name of the function")]
        #[derive(Debug)]
        #visible enum #name {}

        const _: () = {
            use ::dataflow_framework::__private::clap;

            #[derive(clap::Args)]
            #[allow(unreachable_pub, missing_debug_implementations, reason = "it has no name outside")]
            pub struct __Options { #(#fields,)* }

            impl ::dataflow_framework::Program for #name {
                type Arguments = (#(#types,)*);
                type Output = #output;

                fn tasks() -> ::std::vec::Vec<&'static ::dataflow_framework::TaskDef> {
                    #table
                }

                fn run(
                    (#(#values,)*): &Self::Arguments,
                ) -> ::core::result::Result<
                    Self::Output,
                    ::std::boxed::Box<dyn ::std::error::Error + ::core::marker::Send + ::core::marker::Sync>,
                > {
                    #call
                }
            }

            impl ::dataflow_framework::cli::Command for #name {
                const NAME: &'static str = #title;
                const VERSION: &'static str = ::core::env!("CARGO_PKG_VERSION");
                const ABOUT: &'static str = #about;
                type Options = __Options;

                fn arguments(
                    __Options { #(#names,)* }: __Options,
                ) -> ::core::result::Result<Self::Arguments, ::dataflow_framework::cli::Failure> {
                    ::core::result::Result::Ok((#(#names,)*))
                }

                fn show(output: #output) -> ::dataflow_framework::cli::Shown {
                    ::dataflow_framework::__private::shown(&output)
                }
            }
        };

        /// Runs the command line of the program.
        #[allow(dead_code, reason = "a test of the program does not")]
        #visible fn main() -> ::std::process::ExitCode {
            ::dataflow_framework::cli::main::<#name>()
        }
    })
}

fn check(signature: &Signature) -> Result<()> {
    let error = if let Some(word) = &signature.asyncness {
        let reason = "a program is a plain function, which waits for data by `get`: leave `async` out, and await in tasks \
                      (`#[task] async fn`)";
        Error::new(word.span(), reason)
    } else if let Some(word) = &signature.unsafety {
        Error::new(word.span(), "a program is a safe function")
    } else if signature.ident == "main" {
        let reason = "the command has the name of the function, and `main` is added: choose another name";
        Error::new(signature.ident.span(), reason)
    } else if signature.generics.params.is_empty() {
        return Ok(());
    } else {
        Error::new(signature.generics.span(), "a program cannot be generic: other nodes run it, too")
    };
    Err(error)
}

/// The arguments that every program has.
const TAKEN: [&str; 36] = [
    "advertise",
    "after",
    "any_build",
    "attempts",
    "check",
    "cluster",
    "copies",
    "crashes",
    "exclusive",
    "graph",
    "insecure",
    "json",
    "log",
    "log_every",
    "name",
    "nodes",
    "publish_to",
    "quiet",
    "require",
    "sequential",
    "state",
    "store",
    "summary",
    "by_task",
    "task_option",
    "trace",
    "wait",
    "weight",
    "work_dir",
    "workers",
    "zk",
    "zk_auth",
    "zk_give_up",
    "zk_tls_ca",
    "zk_tls_cert",
    "zk_tls_key",
];

impl Argument {
    /// Reads a parameter, and takes its attributes away.
    fn take(parameter: &mut FnArg) -> Result<Self> {
        let FnArg::Typed(parameter) = parameter else {
            return Err(Error::new(parameter.span(), "a program is a free function"));
        };
        let Pat::Ident(pattern) = &*parameter.pat else {
            return Err(Error::new(parameter.pat.span(), "an argument of a program needs a name"));
        };
        if TAKEN.iter().any(|taken| pattern.ident == taken) {
            let reason = format!("every program has an option `{}`: choose another name", pattern.ident);
            return Err(Error::new(pattern.ident.span(), reason));
        }
        let of = (*parameter.ty).clone();
        if let Type::Reference(reference) = ungrouped(&of) {
            let reason = "a program owns its arguments: take `String` for `&str`, `Vec<T>` for `&[T]`";
            return Err(Error::new(reference.span(), reason));
        }
        let is_flag =
            matches!(ungrouped(&of), Type::Path(TypePath { qself: None, path }) if path.is_ident("bool"));
        let mut attributes = std::mem::take(&mut parameter.attrs);
        for attribute in attributes.iter_mut().filter(|attribute| attribute.path().is_ident("arg")) {
            expand_default(attribute, is_flag)?;
        }
        if is_flag && !attributes.iter().any(|attribute| attribute.path().is_ident("arg")) {
            attributes.push(parse_quote!(#[arg(long)]));
        }
        Ok(Self { name: pattern.ident.clone(), of, attributes })
    }
}

/// Replaces `default = 20` by the words of clap for an option with a default.
fn expand_default(attribute: &mut Attribute, is_flag: bool) -> Result<()> {
    let Meta::List(list) = &mut attribute.meta else { return Ok(()) };
    let given = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
    if let Some(default) = given.iter().find(|meta| is_flag && meta.path().is_ident("default")) {
        return Err(Error::new(
            default.span(),
            "an option without a value is false by default: leave `default` out",
        ));
    }
    let is_named = given.iter().any(|meta| meta.path().is_ident("long"));
    let expanded = given.iter().map(|meta| match meta {
        Meta::NameValue(pair) if pair.path.is_ident("default") => {
            let value = &pair.value;
            let long = (!is_named).then(|| quote!(long,));
            let is_text = matches!(value, Expr::Lit(literal) if matches!(literal.lit, Lit::Str(_)));
            let word = if is_text { quote!(default_value) } else { quote!(default_value_t) };
            quote!(#long #word = #value)
        }
        other => other.to_token_stream(),
    });
    list.tokens = quote!(#(#expanded),*);
    Ok(())
}

/// Returns the table of the tasks.
///
/// A name that is no task does not compile. If it is a function, its type comes from `unlisted`, so that the message
/// names it: an import by name, which a task has also as a type, goes before one by `*`.
fn table(tasks: &Punctuated<Path, Token![,]>) -> TokenStream {
    let numbered = |prefix| {
        let alias =
            move |(number, task): (usize, &Path)| format_ident!("{prefix}_{number}", span = task.span());
        tasks.iter().enumerate().map(alias)
    };
    let (aliases, modules): (Vec<_>, Vec<_>) = (numbered("task").collect(), numbered("name").collect());
    let paths = tasks.iter();
    let names: Vec<_> = tasks.iter().filter_map(|task| Some(&task.segments.last()?.ident)).collect();
    quote! {
        #[allow(non_camel_case_types, unused_imports, reason = "they stand for names that are no tasks")]
        mod unlisted {
            #(mod #modules { pub struct #names; } pub use #modules::#names as #aliases;)*
        }
        #[allow(unused_imports, reason = "they stand for names that are no tasks")]
        use unlisted::*;
        #(use #paths as #aliases;)*
        ::std::vec![#(<#aliases as ::dataflow_framework::__private::IsTask>::TASK),*]
    }
}

/// Returns the first paragraph of the documentation, without the stop at its end.
fn about(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let first: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    first.strip_suffix('.').unwrap_or(&first).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Tasks, program};

    fn made(tasks: &str, function: &str) -> Result<String, String> {
        let tasks: Tasks = syn::parse_str(tasks).map_err(|error| error.to_string())?;
        let function = syn::parse_str(function).expect("it is a function");
        program(&tasks, function).map(|tokens| tokens.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_become_arguments_of_command() {
        let made = made(
            "points, other::add",
            "/// Moves centres\n/// to their points.\n///\n/// More.\n\
             pub fn move_all(#[arg(default = 20, short)] rounds: u32, exact: bool, #[arg(default = \"in\")] file: PathBuf) -> io::Result<f64> {}",
        )
        .expect("it is a program");
        for expected in [
            "pub fn move_all (rounds : u32 , exact : bool , file : PathBuf)",
            "# [arg (long , default_value_t = 20 , short)] rounds : u32",
            "# [arg (long)] exact : bool",
            "# [arg (long , default_value = \"in\")] file : PathBuf",
            "type Arguments = (u32 , bool , PathBuf ,)",
            "type Output = f64",
            "NAME : & 'static str = \"move-all\"",
            "\"Moves centres to their points\"",
            "use other :: add as task_1",
            "map_err",
            "pub fn main ()",
        ] {
            assert!(made.contains(expected), "{expected}: {made}");
        }
    }

    #[test]
    fn plain_result_is_output() {
        let made = made("", "fn sum() -> Vec<f64> {}").expect("it is a program");
        assert!(made.contains("type Output = Vec < f64 >") && !made.contains("map_err"), "{made}");
    }

    #[test]
    fn invalid_program_functions_are_refused_with_reason() {
        for (tasks, function, expected) in [
            ("retry = 3", "fn sum() {}", "list the tasks of the program by name"),
            ("", "fn sum<T>(of: T) {}", "cannot be generic"),
            ("", "async fn sum() {}", "leave `async` out, and await in tasks"),
            ("", "fn sum(&self) {}", "free function"),
            ("", "fn sum((a, b): (u8, u8)) {}", "needs a name"),
            ("", "fn sum(of: &str) {}", "take `String` for `&str`"),
        ] {
            let error = made(tasks, function).expect_err("it is wrong");
            assert!(error.contains(expected), "{function}: {error}");
        }
    }
}
