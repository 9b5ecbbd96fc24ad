"""A real cluster under load, whose processes are killed, paused and started again at random: nothing acknowledged may
be lost.
"""
