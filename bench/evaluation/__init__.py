"""The evaluation: experiments, the harness that measures them, and the pages and plots made of their results.

*Harness*: ``pairs`` runs a plain and a profiled process on one core. ``interpreters`` finds what to run them with.
*Experiments*: a file each in ``experiments``; ``experiment`` says what one is. *Results*: ``results`` keeps them as JSON;
``plot`` and ``page`` make pictures and Markdown of them, so a page can be made again without measuring.
"""
