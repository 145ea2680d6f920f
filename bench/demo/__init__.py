"""`make demo`: three brokers, the website-activity example's generator and pipeline, and a view of all of it.

parts.py    the processes, started and stopped
facts.py    what topics, flows and the lake say, asked once a second
view.py     what a person sees of it: drawn on a terminal, in lines elsewhere
"""
