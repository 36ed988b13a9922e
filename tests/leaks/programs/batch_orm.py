"""Rows are imported into a database by an ORM, in one session."""

from sqlalchemy import ForeignKey, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    books: Mapped[list["Book"]] = relationship(back_populates="author")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


engine = create_engine("sqlite://")
Base.metadata.create_all(engine)
with Session(engine) as session:
    for number in range(6000):
        author = Author(name=f"author {number}")
        author.books = [Book(title=f"book {number} {k}") for k in range(4)]
        session.add(author)
        if number % 500 == 499:
            session.flush()
    session.commit()
    print(session.query(Book).count())
