//! Tasks that are methods: an `impl` with the attribute, in which methods have it, too.
//!
//! Each becomes a task of its own, a function that takes the value as its first parameter; and a trait with all of them
//! is implemented for handles of the type, so that they are called there as on the value.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{
    Attribute, Error, FnArg, ImplItem, ImplItemFn, ItemFn, ItemImpl, Meta, Pat, Result, Type, Visibility,
    parse_quote, parse2, spanned::Spanned as _,
};

use crate::{
    code,
    expand::{self, handles, parameter},
    options::Options,
    signature::Signature,
};

/// The methods of a handle, which a task would hide.
const OF_HANDLES: [&str; 6] = ["get", "get_mut", "new", "clone", "publish", "of"];

/// Returns the `impl`, and the tasks of its methods.
pub(crate) fn tasks(mut item: ItemImpl) -> Result<TokenStream> {
    if !item.generics.params.is_empty() {
        let reason = "methods of a generic type cannot be tasks, since other nodes find them by their names: write a task \
                      for each type";
        return Err(Error::new(item.generics.span(), reason));
    }
    if let Some((_, of, _)) = &item.trait_ {
        return Err(Error::new(
            of.span(),
            "methods of a trait cannot be tasks: write an `impl` of the type itself",
        ));
    }
    let of = (*item.self_ty).clone();
    let type_name = name_of(&of)?;
    let mut made = Vec::new();
    for method in item.items.iter_mut().filter_map(|item| match item {
        ImplItem::Fn(method) => Some(method),
        _ => None,
    }) {
        if let Some(options) = take_options(&mut method.attrs)? {
            made.push(Method::read(method, &of, &type_name, &options)?);
        }
    }
    if made.is_empty() {
        return Err(Error::new(of.span(), "mark the methods that are tasks with `#[task]`, too"));
    }
    let tasks = made.iter().map(|method| &method.task);
    let handles = of_handles(&made, &of, &type_name);
    Ok(quote!(#item #(#tasks)* #handles))
}

/// Returns the name of a type.
fn name_of(of: &Type) -> Result<Ident> {
    match of {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().map(|last| last.ident.clone()),
        _ => None,
    }
    .ok_or_else(|| Error::new(of.span(), "the type has no name"))
}

/// Removes the attribute of a method that is a task, and returns its options.
fn take_options(attributes: &mut Vec<Attribute>) -> Result<Option<Options>> {
    let Some(position) = attributes.iter().position(|attribute| attribute.path().is_ident("task")) else {
        return Ok(None);
    };
    match attributes.remove(position).meta {
        Meta::Path(_) => Ok(Some(Options::default())),
        Meta::List(list) => parse2(list.tokens).map(Some),
        Meta::NameValue(pair) => Err(Error::new(pair.span(), "the options of a task are in parentheses")),
    }
}

/// A method that is a task.
struct Method {
    /// The items that it becomes.
    task: TokenStream,
    /// The declaration in the trait; nothing if the method has no value.
    declared: Option<TokenStream>,
    /// The same with a body.
    implemented: Option<TokenStream>,
    visible: Visibility,
}

impl Method {
    fn read(method: &ImplItemFn, of: &Type, type_name: &Ident, options: &Options) -> Result<Self> {
        let name = &method.sig.ident;
        let mut signature = method.sig.clone();
        signature.ident = format_ident!("{}_{name}", snake(&type_name.to_string()), span = name.span());
        let receiver = signature.inputs.iter_mut().find_map(|input| match input {
            FnArg::Receiver(receiver) => Some(receiver),
            FnArg::Typed(_) => None,
        });
        let is_mutable = match receiver {
            None => None,
            Some(receiver) if receiver.reference.is_none() || receiver.colon_token.is_some() => {
                return Err(Error::new(
                    receiver.span(),
                    "a method that is a task takes `&self` or `&mut self`",
                ));
            }
            Some(receiver) => Some(receiver.mutability.is_some()),
        };
        if let Some(is_mutable) = is_mutable {
            let this: FnArg =
                if is_mutable { parse_quote!(this: &mut #of) } else { parse_quote!(this: &#of) };
            signature.inputs[0] = this;
            if OF_HANDLES.iter().any(|of_handles| name == of_handles) {
                let reason = format!("`{name}` is a method of every handle: give the task another name");
                return Err(Error::new(name.span(), reason));
            }
        }
        // The function that calls the method would be the same after each change of it.
        let code = code::hash(&options.version(), &method.attrs, &signature, &method.block);
        let arguments = signature.inputs.iter().map(argument).collect::<Result<Vec<_>>>()?;
        let documented = method.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
        let documented: Vec<_> = documented.collect();
        let visible = method.vis.clone();
        let awaited = signature.asyncness.map(|_| quote!(.await));
        // In a separate function `Self` would have another meaning.
        let signature = without_self(signature.to_token_stream(), of);
        let function: ItemFn =
            parse2(quote!(#(#documented)* #visible #signature { <#of>::#name(#(#arguments),*) #awaited }))?;
        let read = Signature::read(&function)?;
        options.check(&read)?;
        let (mut declared, mut implemented) = (None, None);
        if let Some(is_mutable) = is_mutable {
            let receiver = if is_mutable { quote!(&mut self) } else { quote!(&self) };
            let parameters = read.parameters.iter().skip(1).map(parameter);
            let returned = handles(&read.returned);
            let head = quote!(fn #name(#receiver #(, #parameters)*) -> #returned);
            let (task, arguments) = (&function.sig.ident, arguments.iter().skip(1));
            declared = Some(quote!(#(#documented)* #head;));
            implemented = Some(quote!(#head { #task(self #(, #arguments)*) }));
        }
        Ok(Self { task: expand::task(&function, &read, options, &code), declared, implemented, visible })
    }
}

/// Returns the name of a parameter, which is passed on.
fn argument(input: &FnArg) -> Result<&Ident> {
    match input {
        FnArg::Typed(input) => match &*input.pat {
            Pat::Ident(pattern) => Ok(&pattern.ident),
            other => Err(Error::new(other.span(), "a parameter of a task needs a name")),
        },
        FnArg::Receiver(receiver) => Err(Error::new(receiver.span(), "there is a value already")),
    }
}

/// Returns the trait that allows the tasks to be called on handles.
fn of_handles(methods: &[Method], of: &Type, type_name: &Ident) -> TokenStream {
    let declared: Vec<_> = methods.iter().filter_map(|method| method.declared.as_ref()).collect();
    if declared.is_empty() {
        return TokenStream::new();
    }
    let implemented = methods.iter().filter_map(|method| method.implemented.as_ref());
    let name = format_ident!("{type_name}Tasks");
    let documented = format!("The tasks that are methods of [`{type_name}`], called on its data.");
    let visible = methods.iter().map(|method| &method.visible);
    let is_public = |visible: &&Visibility| matches!(visible, Visibility::Public(_));
    let visible = visible.clone().find(is_public).or_else(|| visible.clone().next());
    quote! {
        #[doc = #documented]
        #[allow(dead_code, reason = "a program calls some of them")]
        #visible trait #name {
            #(#declared)*
        }

        impl #name for ::dataflow_framework::Data<#of> {
            #(#implemented)*
        }
    }
}

/// Puts a type in the place of `Self`.
fn without_self(tokens: TokenStream, of: &Type) -> TokenStream {
    let replace = |token| match token {
        TokenTree::Ident(ident) if ident == "Self" => of.to_token_stream(),
        TokenTree::Group(group) => {
            let mut replaced = Group::new(group.delimiter(), without_self(group.stream(), of));
            replaced.set_span(group.span());
            TokenTree::Group(replaced).into()
        }
        other => other.into(),
    };
    tokens.into_iter().flat_map(replace).collect()
}

/// Returns the name of a type as that of a function.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use syn::ItemImpl;

    use super::{snake, tasks};

    fn made(text: &str) -> Result<String, String> {
        let item: ItemImpl = syn::parse_str(text).expect("it is an `impl`");
        tasks(item).map(|tokens| tokens.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn marked_methods_become_tasks_and_methods_of_handles() {
        let made = made(
            "impl TwoBodies { #[task(retry = 2)] pub fn add(&mut self, other: &Self) {} \
             #[task] fn new(seed: u64) -> Self { todo!() } fn helper(&self) {} \
             #[task] async fn ask(&self) -> u8 { 0 } }",
        )
        .expect("they are tasks");
        for expected in [
            "pub trait TwoBodiesTasks",
            "impl TwoBodiesTasks for :: dataflow_framework :: Data < TwoBodies >",
            "fn add (& mut self , other : & :: dataflow_framework :: Data < TwoBodies >)",
            "struct two_bodies_add",
            "struct two_bodies_new",
            "retry : 2",
            "async fn now (this : & TwoBodies) -> u8 { < TwoBodies > :: ask (this) . await }",
            "fn helper (& self)",
        ] {
            assert!(made.contains(expected), "{expected}: {made}");
        }
        assert!(!made.contains("two_bodies_helper"));
    }

    #[test]
    fn invalid_task_methods_are_refused_with_reason() {
        for (text, expected) in [
            ("impl<T> List<T> { #[task] fn add(&self) {} }", "generic type"),
            ("impl Clone for List { #[task] fn clone(&self) -> Self {} }", "of a trait"),
            ("impl List { fn add(&self) {} }", "mark the methods"),
            ("impl List { #[task] fn add(self) {} }", "`&self` or `&mut self`"),
            ("impl List { #[task] fn get(&self) -> u8 { 0 } }", "another name"),
            ("impl List { #[task = 3] fn add(&self) {} }", "in parentheses"),
            ("impl List { #[task(tries = 3)] fn add(&self) {} }", "there is no option tries"),
            ("impl List { #[task(cached)] fn add(&self) -> Data<u8> {} }", "not a handle"),
        ] {
            let error = made(text).expect_err("it is wrong");
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn type_names_become_function_names() {
        assert_eq!(["Domain", "TwoBodies", "x"].map(snake), ["domain", "two_bodies", "x"]);
    }
}
