//! Reads the source into functions. Names of variables become places in the frame.

use std::collections::HashMap;

/// A function.
pub struct Function {
    pub name: String,
    pub line: u32,
    pub parameters: usize,
    /// Places for parameters and for variables of `let`.
    pub places: usize,
    pub body: Vec<Expression>,
}

/// An expression, with the line on which it begins.
pub struct Expression {
    pub line: u32,
    pub form: Form,
}

pub enum Form {
    Nil,
    Integer(i64),
    Place(usize),
    Set(usize, Box<Expression>),
    If(Box<[Expression; 3]>),
    While(Box<Expression>, Vec<Expression>),
    Do(Vec<Expression>),
    Call(usize, Vec<Expression>),
    Operation(Operation, Vec<Expression>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
    Quotient,
    Less,
    Node,
    Left,
    Right,
    SetLeft,
    SetRight,
    Vector,
    VectorRef,
    VectorSet,
}

/// Name, operation, number of operands.
const OPERATIONS: [(&str, Operation, usize); 13] = [
    ("+", Operation::Add, 2),
    ("-", Operation::Subtract, 2),
    ("*", Operation::Multiply, 2),
    ("quotient", Operation::Quotient, 2),
    ("<", Operation::Less, 2),
    ("node", Operation::Node, 2),
    ("left", Operation::Left, 1),
    ("right", Operation::Right, 1),
    ("set-left!", Operation::SetLeft, 2),
    ("set-right!", Operation::SetRight, 2),
    ("vector", Operation::Vector, 1),
    ("vector-ref", Operation::VectorRef, 2),
    ("vector-set!", Operation::VectorSet, 3),
];

enum Syntax {
    Word(String, u32),
    List(Vec<Syntax>, u32),
}

impl Syntax {
    fn line(&self) -> u32 {
        match self {
            Self::Word(_, line) | Self::List(_, line) => *line,
        }
    }

    fn word(&self) -> Result<&str, String> {
        match self {
            Self::Word(word, _) => Ok(word),
            Self::List(_, line) => Err(format!("line {line}: a name is expected")),
        }
    }

    fn list(&self) -> Result<&[Syntax], String> {
        match self {
            Self::List(items, _) => Ok(items),
            Self::Word(word, line) => Err(format!("line {line}: a list is expected, not {word}")),
        }
    }
}

/// Parses a program.
///
/// # Errors
/// The line, and what is wrong there.
pub fn read(source: &str) -> Result<Vec<Function>, String> {
    let definitions = parse(source)?;
    let mut names = HashMap::new();
    let mut heads = Vec::new();
    for (number, definition) in definitions.iter().enumerate() {
        let [define, head, body @ ..] = definition.list()? else {
            return Err(format!(
                "line {}: a definition is expected",
                definition.line()
            ));
        };
        if define.word()? != "define" {
            return Err(format!("line {}: define is expected", define.line()));
        }
        let [name, parameters @ ..] = head.list()? else {
            return Err(format!(
                "line {}: a function's name is expected",
                head.line()
            ));
        };
        names.insert(name.word()?.to_owned(), (number, parameters.len()));
        heads.push((name, parameters, body));
    }
    heads
        .into_iter()
        .map(|(name, parameters, body)| {
            let mut scope = Scope {
                functions: &names,
                variables: Vec::new(),
                places: 0,
            };
            for parameter in parameters {
                scope.variable(parameter.word()?);
            }
            Ok(Function {
                name: name.word()?.to_owned(),
                line: name.line(),
                parameters: parameters.len(),
                body: scope.all(body)?,
                places: scope.places,
            })
        })
        .collect()
}

fn parse(source: &str) -> Result<Vec<Syntax>, String> {
    let mut open = vec![(Vec::new(), 0)];
    for (line, text) in (1..).zip(source.lines()) {
        let code = text.split(';').next().unwrap_or_default();
        let spaced = code.replace('(', " ( ").replace(')', " ) ");
        for word in spaced.split_whitespace() {
            match word {
                "(" => open.push((Vec::new(), line)),
                ")" => {
                    let (items, begin) = open.pop().unwrap_or_default();
                    let (outer, _) = open
                        .last_mut()
                        .ok_or(format!("line {line}: one ) too many"))?;
                    outer.push(Syntax::List(items, begin));
                }
                _ => {
                    let (items, _) = open.last_mut().ok_or("nothing is open")?;
                    items.push(Syntax::Word(word.to_owned(), line));
                }
            }
        }
    }
    match open.pop() {
        Some((items, 0)) => Ok(items),
        Some((_, line)) => Err(format!("line {line}: this ( is not closed")),
        None => Ok(Vec::new()),
    }
}

struct Scope<'a> {
    functions: &'a HashMap<String, (usize, usize)>,
    variables: Vec<(String, usize)>,
    places: usize,
}

impl Scope<'_> {
    fn variable(&mut self, name: &str) -> usize {
        self.variables.push((name.to_owned(), self.places));
        self.places += 1;
        self.places - 1
    }

    fn place(&self, name: &str, line: u32) -> Result<usize, String> {
        let found = self.variables.iter().rev().find(|(one, _)| one == name);
        found
            .map(|&(_, place)| place)
            .ok_or(format!("line {line}: {name} is not defined"))
    }

    fn all(&mut self, items: &[Syntax]) -> Result<Vec<Expression>, String> {
        items.iter().map(|item| self.expression(item)).collect()
    }

    fn one(&mut self, item: &Syntax) -> Result<Box<Expression>, String> {
        self.expression(item).map(Box::new)
    }

    fn expression(&mut self, syntax: &Syntax) -> Result<Expression, String> {
        let line = syntax.line();
        let form = match syntax {
            Syntax::Word(word, _) if word == "nil" => Form::Nil,
            Syntax::Word(word, _) => match word.parse() {
                Ok(integer) => Form::Integer(integer),
                Err(_) => Form::Place(self.place(word, line)?),
            },
            Syntax::List(items, _) => self.form(items, line)?,
        };
        Ok(Expression { line, form })
    }

    fn form(&mut self, items: &[Syntax], line: u32) -> Result<Form, String> {
        let [head, rest @ ..] = items else {
            return Err(format!("line {line}: an empty list is no expression"));
        };
        Ok(match (head.word()?, rest) {
            ("if", [condition, yes, no]) => Form::If(Box::new([
                self.expression(condition)?,
                self.expression(yes)?,
                self.expression(no)?,
            ])),
            ("while", [condition, body @ ..]) => Form::While(self.one(condition)?, self.all(body)?),
            ("do", body) => Form::Do(self.all(body)?),
            ("set!", [name, value]) => Form::Set(self.place(name.word()?, line)?, self.one(value)?),
            ("let", [binding, body @ ..]) => {
                let [name, value] = binding.list()? else {
                    return Err(format!("line {line}: let has one name and one value"));
                };
                let value = self.one(value)?;
                let outer = self.variables.len();
                let place = self.variable(name.word()?);
                let mut all = vec![Expression {
                    line,
                    form: Form::Set(place, value),
                }];
                all.extend(self.all(body)?);
                self.variables.truncate(outer);
                Form::Do(all)
            }
            (name, operands) => {
                let (form, count) = if let Some(&(number, count)) = self.functions.get(name) {
                    (Form::Call(number, self.all(operands)?), count)
                } else if let Some(&(_, operation, count)) =
                    OPERATIONS.iter().find(|one| one.0 == name)
                {
                    (Form::Operation(operation, self.all(operands)?), count)
                } else {
                    return Err(format!("line {line}: {name} is not defined"));
                };
                if operands.len() != count {
                    return Err(format!("line {line}: {name} takes {count} operands"));
                }
                form
            }
        })
    }
}
